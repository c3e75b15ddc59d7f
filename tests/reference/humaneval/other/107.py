def even_odd_palindrome(n):
    counts = [0, 0]
    for number in range(1, n + 1):
        digits, turned = number, 0
        while digits:
            digits, last = divmod(digits, 10)
            turned = 10 * turned + last
        if turned == number:
            counts[number % 2] += 1
    return tuple(counts)
