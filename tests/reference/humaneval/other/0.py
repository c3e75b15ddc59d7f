from itertools import pairwise


def has_close_elements(numbers, threshold):
    return any(right - left < threshold for left, right in pairwise(sorted(numbers)))
