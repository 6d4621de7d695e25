"""The one door: python train.py fit --config configs/FAMILY/X.yaml"""

if __name__ == "__main__":
    from commands.listening import listen

    listen()  # before the imports, which take seconds: a signal would kill a process that has no handler yet
    from commands.cli import main

    main()
