def find_zero(xs):
    def value(x):
        total = 0.0
        for coefficient in reversed(xs):
            total = total * x + coefficient
        return total

    low, high = -1.0, 1.0
    while value(low) * value(high) > 0:
        low, high = 1.7 * low, 1.9 * high
    rising = value(high) > value(low)
    for _ in range(200):
        middle = (low + high) / 2
        if (value(middle) > 0) == rising:
            high = middle
        else:
            low = middle
    return high
