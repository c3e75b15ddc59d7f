def reverse_delete(s, c):
    kept = s.translate({ord(letter): None for letter in c})
    return kept, kept == kept[::-1]
