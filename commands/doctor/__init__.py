"""`python train.py doctor`: checks everything that a training needs before it starts.

    main.py             the command line
    check.py            Check, Finding, and the function that runs checks with time limits
    findings_output.py  the findings as a table, as JSON and as an exit code
    launch_plan.py      the number of ranks, nodes and loader workers that will be started
    machine_checks.py   the list of machine checks; each is a file in machine/ or network/
    config_checks.py    the checks of a config, in training/
    network/multi_process_checks.py  the checks between ranks, under torchrun or srun

The doctor starts without torch and lightning, so that it can report what is wrong with them: functions import them.
"""
