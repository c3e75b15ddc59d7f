import statistics


def median(numbers):
    return statistics.median(numbers)
