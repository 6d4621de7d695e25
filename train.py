"""The one door: python train.py fit --config configs/FAMILY/X.yaml"""

import sys

if __name__ == "__main__":
    from commands.listening import listen

    listen()  # before the imports, which take seconds: a signal would kill a process that has no handler yet
    from commands.prepared import nothing_to_do

    if nothing_to_do(sys.argv[1:]):
        sys.exit()
    from commands.cli import main

    main()
