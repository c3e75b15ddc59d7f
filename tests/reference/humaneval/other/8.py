from functools import reduce
from operator import mul


def sum_product(numbers):
    return [sum(numbers), reduce(mul, numbers, 1)]
