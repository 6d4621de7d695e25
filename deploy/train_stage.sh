#!/bin/bash
# Trains a stage of the vision-language family, on all GPUs of this machine or, without a GPU, on its CPU:
#
#     bash deploy/train_stage.sh --stage pretrain|sft|one_stage [--devices N] [options of train.py fit]
#     bash deploy/train_stage.sh --stage sft --devices 4 --model.init_args.init_from runs/NAME/checkpoints/best.ckpt
#
# The stage is configs/vision_language/STAGE.yaml. All other options are passed to train.py unchanged, also further
# --config files, which override the stage's. The script is not interactive and returns the exit code of train.py.
# deploy/train_stage.bat is for Windows.
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

# The environment of `make install`, otherwise the python on the PATH.
python=python
if [ -x "$repository/.venv/bin/python" ]; then
    python=$repository/.venv/bin/python
fi

config=$repository/configs/vision_language/$stage.yaml
# Bash before 4.4 treats an empty array as unset, which `set -u` refuses.
exec "$python" "$repository/train.py" fit --config "$config" --trainer.devices "$devices" ${options[@]+"${options[@]}"}
