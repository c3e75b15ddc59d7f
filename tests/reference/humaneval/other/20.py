from itertools import pairwise


def find_closest_elements(numbers):
    return min(pairwise(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
