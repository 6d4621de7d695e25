"""`python train.py doctor`: looks at everything that a training needs, before it costs hours.

    finding.py        what a check has to say, and what a check is
    examination.py    runs the checks, each with a time limit; a check that raises or hangs is itself a finding
    report.py         the findings as a table, as JSON, and as an exit code
    command.py        the command line: which checks are to be run
    plan.py           how many processes on how many nodes are to be started
    machine.py        the checks of the machine: versions, gpus (nvidia), cores, memory, limits, port, host_name,
                      interfaces, variables, slurm, one file each
    config_checks.py  the checks of a config: config_errors, pretrained, trial (micro_batch), checkpoint_folder;
                      settings.py reads it as `fit` would
    team.py           the checks of a team, under torchrun or srun: meeting (over a store), same_everywhere, reach,
                      computing (with group.py); merging.py makes one report of those of all processes

It begins without torch and lightning, so that it can say what is wrong with them: they are imported inside functions.
"""
