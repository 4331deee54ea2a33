#!/bin/bash
# by-hand.sh: two machines over ssh. Each has llmscen and the scenario in ~/bench, and credentials of the store.
hosts=(load-a load-b)              # change: the machines; the first one is shard 0, which makes the report
store=s3://bench/runs              # change: a bucket, or file:///… of a folder that both machines see
key=chat-$(date +%Y%m%d-%H%M%S)    # one key per attempt

for i in "${!hosts[@]}"; do
    ssh "${hosts[i]}" "cd bench && exec llmscen run chat.yaml --shard $i/${#hosts[@]} --via $store --run $key" &
    pids+=($!)
done
for i in "${!hosts[@]}"; do
    wait "${pids[i]}" && codes[i]=0 || codes[i]=$?
    echo "shard $i on ${hosts[i]}: exit ${codes[i]}"
done
exit "${codes[0]}"                 # the verdict
