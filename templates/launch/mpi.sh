#!/bin/bash
# mpi.sh: mpirun only starts the processes and sets rank and size; llmscen does not use MPI.
# Change: the host file, the store (a folder that all hosts see), and -x for each variable that the scenario needs.
exec mpirun -np 8 --hostfile hosts --map-by ppr:1:node -x LLM_API_KEY \
    llmscen run chat.yaml --shard auto --via file:///scratch/me/runs --run "chat-$(date +%Y%m%d-%H%M%S)"
