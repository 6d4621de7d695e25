"""`python train.py doctor`: looks at everything that a training needs, before it costs hours.

    finding.py      what a check has to say, and what a check is
    examination.py  runs the checks, each with a time limit; a check that raises or hangs is itself a finding
    report.py       the findings as a table, as JSON, and as an exit code
    command.py      the command line: which checks are to be run
    checks of the machine  (versions, GPUs, cores, memory, limits, network, variables, SLURM): one file each
    checks of a config     config_checks.py:  config_checks(arguments) -> list[Check]
    checks of a team       team_checks.py:    team_checks(environment) -> list[Check], under torchrun or srun
"""
