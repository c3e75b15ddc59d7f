from collections import Counter


def histogram(test):
    counts = Counter(test.split())
    most = max(counts.values(), default=0)
    return {letter: count for letter, count in counts.items() if count == most}
