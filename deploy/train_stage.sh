#!/bin/bash
# Trains a stage of the vision-language family, on all GPUs of this machine or, where there is none, on its CPU:
#
#     bash deploy/train_stage.sh --stage pretrain|sft|one_stage [--devices N] [options of train.py fit]
#     bash deploy/train_stage.sh --stage sft --devices 4 --model.init_args.init_from runs/NAME/checkpoints/best.ckpt
#
# The stage is configs/vision_language/STAGE.yaml; every other option goes to train.py as it is, further --config files
# (laid over the stage's) among them. It asks nothing, and ends as train.py does. deploy/train_stage.bat is for Windows.
set -eu

repository=$(cd "$(dirname "$0")/.." && pwd)
stage=
devices=auto
options=()

while [ $# -gt 0 ]; do
    case $1 in
        --stage=*) stage=${1#*=} ;;
        --devices=*) devices=${1#*=} ;;
        --stage | --devices)
            if [ $# -lt 2 ]; then
                echo "train_stage.sh: $1 needs a value" >&2
                exit 2
            fi
            if [ "$1" = --stage ]; then stage=$2; else devices=$2; fi
            shift
            ;;
        *) options+=("$1") ;;
    esac
    shift
done

case $stage in
    pretrain | sft | one_stage) ;;
    *)
        echo "train_stage.sh: --stage is ${stage:-missing}, expected pretrain, sft or one_stage" >&2
        exit 2
        ;;
esac

# The environment that `make install` has made, or else the python that is there.
python=python
if [ -x "$repository/.venv/bin/python" ]; then
    python=$repository/.venv/bin/python
fi

config=$repository/configs/vision_language/$stage.yaml
# Bash before 4.4 takes an array without elements for one that is not set.
exec "$python" "$repository/train.py" fit --config "$config" --trainer.devices "$devices" ${options[@]+"${options[@]}"}
