"""The one door: python train.py fit --config configs/FAMILY/X.yaml"""

from commands.cli import main

if __name__ == "__main__":
    main()
