def get_row(lst, x):
    found = []
    for number, row in enumerate(lst):
        for column in reversed(range(len(row))):
            if row[column] == x:
                found.append([number, column])
    return found
