def correct_bracketing(brackets):
    while "<>" in brackets:
        brackets = brackets.replace("<>", "")
    return brackets == ""
