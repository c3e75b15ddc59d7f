def longest(strings):
    return max(strings, key=len, default=None)
