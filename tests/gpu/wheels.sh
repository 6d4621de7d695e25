#!/bin/sh
# Carries the packages of `make test-gpu` to a machine without internet that has torch and Lightning.
#   with internet:     sh tests/gpu/wheels.sh download wheels 3.12       (the version of Python there)
#   on that machine:   sh tests/gpu/wheels.sh install wheels python3       (further arguments are pip's)
set -eu
# With all that they need, but torch, lightning and numpy: pip itself would fetch torch, which torchmetrics requires.
packages='jsonargparse docstring-parser typeshed-client importlib-resources typing-extensions torchmetrics
  lightning-utilities tensorboard tensorboard-data-server absl-py grpcio markdown protobuf werkzeug markupsafe rich
  markdown-it-py mdurl pygments psutil filelock pyyaml pytest pytest-timeout iniconfig pluggy packaging hypothesis
  sortedcontainers'
# The same for the extras images, language, documents, bits and liger of setup.cfg.
packages="$packages scikit-learn scipy joblib cloudpickle threadpoolctl narwhals matplotlib contourpy cycler fonttools
  kiwisolver pyparsing python-dateutil pillow transformers tokenizers safetensors huggingface-hub hf-xet fsspec httpx2
  httpcore2 h11 anyio idna truststore typer click shellingham annotated-doc pydantic pydantic-core annotated-types
  typing-inspection regex tqdm peft accelerate pyarrow tzdata pypdfium2 pdfplumber pdfminer-six cryptography cffi
  pycparser charset-normalizer bm25s reportlab bitsandbytes liger-kernel"
case ${1:-} in
  download)
    # shellcheck disable=SC2086
    exec python3 -m pip download --quiet --no-deps --only-binary=:all: --python-version "$3" --dest "$2" \
      --constraint constraints.txt $packages ;;
  install)
    folder=$2 python=$3
    shift 3
    # shellcheck disable=SC2086
    exec "$python" -m pip install --quiet --no-deps --no-index --find-links "$folder" "$@" $packages ;;
  *)
    sed -n '2,4p' "$0" >&2
    exit 2 ;;
esac
