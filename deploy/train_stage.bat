@echo off
rem Trains a stage of the vision-language family, on all GPUs of this machine or, without a GPU, on its CPU:
rem
rem     deploy\train_stage.bat --stage pretrain^|sft^|one_stage [--devices N] [options of train.py fit]
rem     deploy\train_stage.bat --stage sft --devices 4 --model.init_args.init_from runs\NAME\checkpoints\best.ckpt
rem
rem The stage is configs\vision_language\STAGE.yaml. All other options are passed to train.py unchanged. Write options as
rem --KEY VALUE, and quote values with commas, equals signs or semicolons, at which cmd splits words.
rem The script is not interactive and returns the exit code of train.py. deploy/train_stage.sh is for Linux and macOS.
setlocal

rem Set before the first shift, which also moves %%0.
set "repository=%~dp0.."
set "stage="
set "devices=auto"
set "options="

:next
if "%~1"=="" goto check
if "%~1"=="--stage" goto stage
if "%~1"=="--devices" goto devices
set options=%options% %1
shift
goto next

:stage
set "stage=%~2"
shift
if not "%~1"=="" shift
goto next

:devices
if "%~2"=="" goto no_value
set "devices=%~2"
shift
shift
goto next

:no_value
echo train_stage.bat: --devices needs a value>&2
exit /b 2

:check
if "%stage%"=="pretrain" goto run
if "%stage%"=="sft" goto run
if "%stage%"=="one_stage" goto run
echo train_stage.bat: --stage is "%stage%", expected pretrain, sft or one_stage>&2
exit /b 2

:run
rem The environment in the repository's folder, otherwise the python on the PATH.
set "python=python"
if exist "%repository%\.venv\Scripts\python.exe" set "python=%repository%\.venv\Scripts\python.exe"
rem Windows has no NCCL, so ranks communicate by gloo. PyTorch's builds for Windows lack libuv.
set "strategy=--trainer.strategy DDPStrategy --trainer.strategy.process_group_backend gloo"
if "%devices%"=="1" set "strategy="
set "USE_LIBUV=0"

"%python%" "%repository%\train.py" fit --config "%repository%\configs\vision_language\%stage%.yaml" --trainer.devices %devices% %strategy%%options%
exit /b %errorlevel%
