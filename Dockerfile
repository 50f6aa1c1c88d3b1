# `rankfold serve` for the models in /models.
#
#     docker build -t rankfold .
#     docker run -p 8080:8080 -v "$PWD/models:/models:ro" -e RANKFOLD_TOKEN=secret rankfold
#
# For a GPU, name the builds of torch for your version of CUDA, and run with `--gpus all`:
#
#     docker build -t rankfold --build-arg TORCH=https://download.pytorch.org/whl/cu126 .
FROM python:3.11-slim
ARG TORCH=https://download.pytorch.org/whl/cpu
WORKDIR /rankfold
COPY pyproject.toml README.md LICENSE ./
COPY requirements ./requirements
COPY docker ./docker
COPY src ./src
RUN TORCH="$TORCH" sh docker/install.sh && rankfold --version
USER nobody
ENV HOME=/tmp
EXPOSE 8080
HEALTHCHECK CMD ["python", "docker/healthy.py"]
CMD ["sh", "docker/serve.sh"]
