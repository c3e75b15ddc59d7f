from decimal import ROUND_HALF_UP, Decimal


def closest_integer(value):
    return int(Decimal(value).quantize(Decimal(1), rounding=ROUND_HALF_UP))
