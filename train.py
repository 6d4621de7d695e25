"""The one door: python train.py fit --config configs/FAMILY/X.yaml"""

import sys

if __name__ == "__main__":
    from commands.overview import overview_asked, show_overview

    if overview_asked(sys.argv[1:]):
        sys.exit(show_overview(sys.argv[1:]))
    from commands.listening import listen

    listen()  # before the imports, which take seconds: a signal would kill a process that has no handler yet
    from commands.prepared import nothing_to_do

    if nothing_to_do(sys.argv[1:]):
        sys.exit()
    from commands.swift_imports import swift_imports

    with swift_imports():
        if sys.argv[1:2] == ["doctor"]:  # it must be able to say what is wrong with torch or lightning
            from commands.doctor.command import main
        elif sys.argv[1:2] == ["report"]:  # it only reads files: no reason to wait for torch
            from commands.report.command import main
        else:
            from commands.cli import main

    main()
