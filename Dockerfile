# The labeling page in a container. Photos are mounted read-only, the project lies in a volume of its own:
#   docker build -t mma .
#   docker run --rm -it -p 127.0.0.1:8642:8642 -v "$PWD/photos:/photos:ro" -v "$PWD/photos.mma:/project" mma
# CPU-only PyTorch (no CUDA): --build-arg TORCH_INDEX=URL, the CPU index that PyTorch's install page names.
FROM python:3.12-slim

ARG TORCH_INDEX=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
RUN if [ -n "$TORCH_INDEX" ]; then pip install -c constraints.txt --index-url "$TORCH_INDEX" torch; fi \
    && pip install -c constraints.txt '.[onnx,postgres,review]' \
    && useradd --create-home --uid 1000 mma \
    && install -d -o mma -g mma /project

USER 1000:1000
VOLUME /project
EXPOSE 8642
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 8642), 3).close()"]
# Inside the container every address is the container's own; the port is published on this machine's loopback alone.
ENTRYPOINT ["mma"]
CMD ["start", "/photos", "--project", "/project/photos.mma", "--host", "0.0.0.0", "--allow-remote", "--port", "8642", "--no-browser"]
