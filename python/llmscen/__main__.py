"""`python -m llmscen`: the program."""

import os
import sys

from llmscen import binary

if __name__ == "__main__":
    program = str(binary())
    os.execv(program, [program, *sys.argv[1:]])
