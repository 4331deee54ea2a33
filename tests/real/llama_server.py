"""llama.cpp's server from the PyPI package `xllamacpp`, with the flags of `llama-server` that the plans use.

    llama_server.py --model FILE.gguf --alias NAME --port N [--ctx-size N] [--parallel N] [--threads N] [--metrics]
"""

import argparse
import signal

import xllamacpp

parser = argparse.ArgumentParser()
parser.add_argument("--model", required=True)
parser.add_argument("--alias", required=True)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--ctx-size", type=int, default=8192)
parser.add_argument("--parallel", type=int, default=4)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--metrics", action="store_true")
args = parser.parse_args()

params = xllamacpp.CommonParams()
params.model.path = args.model
params.model_alias = {args.alias}
params.hostnames = [args.host]
params.port = args.port
params.n_ctx = args.ctx_size
params.n_parallel = args.parallel
params.cpuparams.n_threads = args.threads
params.cpuparams_batch.n_threads = args.threads
params.endpoint_metrics = args.metrics
params.ui = False

# Blocked before the server starts its threads, so that only this thread waits for them.
stops = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, stops)
server = xllamacpp.Server(params)
print("listening on", server.listening_address, flush=True)
signal.sigwait(stops)
