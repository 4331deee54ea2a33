# nomad job run -var run=chat-$(date +%s) nomad.hcl
variable "run" { type = string }   # one key per attempt

variable "shards" {
  type    = number
  default = 8                      # change: the number of shards
}

job "chat" {
  type = "batch"

  group "shard" {
    count = var.shards

    # A lost shard is not replaced: the run ends.
    restart {
      attempts = 0
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    task "llmscen" {
      driver       = "exec"
      kill_timeout = "60s"         # time to drain and to save the rows; the client's max_kill_timeout must allow it

      config {
        command = "/usr/local/bin/llmscen"   # change: binary, scenario and store
        args = [
          "run", "/srv/bench/chat.yaml", "--shard", "auto", "--via", "s3://bench/runs",
          "--run", var.run, "--wait", "15m",
        ]
      }
      env {
        LLMSCEN_SHARDS = var.shards          # Nomad sets only the index
      }
      resources {
        cores  = 4
        memory = 4096
      }
    }
  }
}
