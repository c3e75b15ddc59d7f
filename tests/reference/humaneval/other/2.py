import math


def truncate_number(number):
    return number - math.floor(number)
