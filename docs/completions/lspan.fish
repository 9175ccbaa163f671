# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_lspan_global_optspecs
    string join \n h/help V/version
end

function __fish_lspan_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_lspan_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_lspan_using_subcommand
    set -l cmd (__fish_lspan_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c lspan -n "__fish_lspan_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_needs_command" -s V -l version -d 'Print version'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "status" -d 'Show cables, interfaces, RDMA devices and GPUs, and why each path is or is not used'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "mesh" -d 'Show the mesh of hosts joined by direct cables: which hosts a cable connects, the route of each pair, what is wrong and the command that fixes it'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "doctor" -d 'Find what is wrong with this machine and its cables, what it costs and the command that fixes it'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "wait" -d 'Wait until a peer can be reached: a cable has a host at its other end, or a host answers'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "perf" -d 'Measure a path'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "selftest" -d 'Test every part that can be tested here: one line each of pass, fail or skip'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "bugreport" -d 'Collect information about this machine and linkspan in one archive for a bug report, without secrets'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "stats" -d 'Show what running processes have moved over linkspan'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "top" -d 'Watch what running processes move over linkspan, on this host or on several'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "events" -d 'Show events of cables and jobs: plugged, unplugged, speed changed, paths lost, recovered or downgraded'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "metrics" -d 'Print the statistics in the format of Prometheus, or serve them over HTTP'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "files" -d 'Serve directories and services of this host to peers'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "ls" -d 'List a peer\'s shares, or what is in one'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "send" -d 'Send files and directory trees to a peer\'s share; an interrupted transfer resumes where it stopped'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "get" -d 'Get files and directory trees from a peer\'s share; an interrupted transfer resumes where it stopped'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "mirror" -d 'Make a directory equal to another one, here or at a peer; what is deleted or replaced goes to the trash'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "trash" -d 'List, restore or remove what was deleted or replaced'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "rm" -d 'Remove files or directories of a peer\'s share, not to the trash'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "mv" -d 'Rename a file or directory of a peer\'s share; nothing is replaced'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "du" -d 'Count files and bytes below a directory of a peer\'s share'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "verify" -d 'Compare local files with a peer\'s, both read back from the disk'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "mount" -d 'Mount a peer\'s share at a directory, read-only, or writable with --rw'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "pipe" -d 'Connect standard input and output to a service of a peer'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "forward" -d 'Forward connections from a port of this host to a service of a peer, until Ctrl-C'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "pair" -d 'Pair with a user of another host, so that each trusts the other from then on'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "key" -d 'Manage this user\'s key and the peers that are trusted'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "devmem" -d 'Device-memory TCP: payload from the network card straight into GPU memory'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "link" -d 'Thunderbolt and USB4 cables: allow hosts, set up streams, choose direct use or a network interface'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "run" -d 'Run a command with the environment that makes NCCL and RCCL use linkspan, and print which paths it used'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "env" -d 'Show every LINKSPAN_ environment variable, its value here and what it does; or the variables that NCCL and RCCL need'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "man" -d 'Write manual pages'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "completions" -d 'Write shell completions'
complete -c lspan -n "__fish_lspan_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand status" -l json -d 'Print JSON (schema linkspan.status/1)'
complete -c lspan -n "__fish_lspan_using_subcommand status" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand mesh" -l wait -d 'How long to listen before the mesh is shown' -r
complete -c lspan -n "__fish_lspan_using_subcommand mesh" -l json -d 'Print JSON (schema linkspan.mesh/1)'
complete -c lspan -n "__fish_lspan_using_subcommand mesh" -l check -d 'Measure every cable, also those between other hosts'
complete -c lspan -n "__fish_lspan_using_subcommand mesh" -l serve -d 'Keep running: find neighbours and relay for them until Ctrl-C'
complete -c lspan -n "__fish_lspan_using_subcommand mesh" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand doctor" -l merge -d 'Check several hosts together, from the output of `lspan doctor --json` on each' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand doctor" -l root -d 'Folder with the sys, proc, dev, etc, run and lib of another machine' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand doctor" -l json -d 'Print JSON (schema linkspan.doctor/1)'
complete -c lspan -n "__fish_lspan_using_subcommand doctor" -l speed -d 'Also measure each path to PEER, which must run `lspan perf serve`, and compare with earlier results of this pair and equal rails with each other. Measures nothing while a process has connections over linkspan'
complete -c lspan -n "__fish_lspan_using_subcommand doctor" -l no-probe -d 'Send no packets'
complete -c lspan -n "__fish_lspan_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand wait" -l timeout -d 'Give up after this time, as in 30s [default: wait without limit]' -r
complete -c lspan -n "__fish_lspan_using_subcommand wait" -l serving -d 'Wait until `lspan perf serve` answers there'
complete -c lspan -n "__fish_lspan_using_subcommand wait" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "serve" -d 'Wait for peers and be the other side of their tests'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "bw" -d 'Bandwidth and message rate'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "lat" -d 'Latency: half round trips of a ping-pong'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "jitter" -d 'Variation of latency: a ping-pong at a fixed pace'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "load" -d 'Latency with and without bulk data moving at the same time'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "multi" -d 'Several streams at once'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "all" -d 'bw, lat, jitter, load and multi, one after another'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "compare" -d 'Every path to a peer, one after another, in one table'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "matrix" -d 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "connect" -d 'Connections only: set up and closed one after another'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "write" -d 'One-sided writes into the peer\'s memory, printed like google-benchmark'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "read" -d 'One-sided reads from the peer\'s memory, printed like google-benchmark'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and not __fish_seen_subcommand_from serve bw lat jitter load multi all compare matrix connect write read help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l bind -d 'Address to listen on; repeat it for more [default: loopback; with a cluster key or paired peers every usable interface]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l port -d 'TCP port to listen on' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l memory -d 'Memory for the tests of all clients together, MiB [default: 6144, or half of this host\'s]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l idle -d 'End the session of a client that is silent for this time [default: 1m]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l mem -d 'Memory of this side\'s messages: host, cuda:N or hip:N' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l path -d 'As in the other tests, for the parent' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l open -d 'Accept every host that can reach this one, paired or not; without --bind listens on every usable interface and on loopback. If a cluster key (LINKSPAN_PSK_FILE) is set, clients still need it'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l once -d 'End after one session'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l follow -d 'End when standard input ends, as that of a command by ssh does'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -l stdio -d 'Be the other side of a parent process: the handle goes to stdout, the end of stdin ends us'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -s s -l size -d 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -s n -l iters -d 'Number of messages (round trips, connections) to time, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -s d -l duration -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l warmup -d 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -s w -l window -d 'Messages in flight [default: 32 up to 4K, else 8]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l mem -d 'Memory of this side\'s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l wait -d 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep' -r -f -a "spin\t'Poll without pause'
adaptive\t'Spin 50 us, then sleep'
sleep\t'Sleep at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l timeout -d 'Time limit for each size [default: 1 minute plus 4 times the duration]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l seed -d 'Seed of the data' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l rounds -d 'Number of interleaved pairs (linkspan, baseline)' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l format -d 'Columns of the table' -r -f -a "human\t'Human-readable'
nccl\t'As nccl-tests prints them'
perftest\t'As perftest prints them'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l report -d 'Write a page with plots, everything in one file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l direction -d 'Direction of the data, as this side sees it' -r -f -a "send\t'To the peer'
recv\t'From the peer'
both\t'Both ways at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l baseline -d 'Also measure what the machine can do without linkspan, and print linkspan\'s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l histogram -d 'Print a histogram below each latency row'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l json -d 'Print one JSON document (schema linkspan.perf/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l json-stream -d 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -l bidir -d 'Both ways at once, the same as --direction both'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from bw" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -s s -l size -d 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -s n -l iters -d 'Number of messages (round trips, connections) to time, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -s d -l duration -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l warmup -d 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -s w -l window -d 'Messages in flight [default: 32 up to 4K, else 8]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l mem -d 'Memory of this side\'s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l wait -d 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep' -r -f -a "spin\t'Poll without pause'
adaptive\t'Spin 50 us, then sleep'
sleep\t'Sleep at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l timeout -d 'Time limit for each size [default: 1 minute plus 4 times the duration]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l seed -d 'Seed of the data' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l rounds -d 'Number of interleaved pairs (linkspan, baseline)' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l format -d 'Columns of the table' -r -f -a "human\t'Human-readable'
nccl\t'As nccl-tests prints them'
perftest\t'As perftest prints them'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l report -d 'Write a page with plots, everything in one file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l baseline -d 'Also measure what the machine can do without linkspan, and print linkspan\'s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l histogram -d 'Print a histogram below each latency row'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l json -d 'Print one JSON document (schema linkspan.perf/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -l json-stream -d 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from lat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -s s -l size -d 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -s n -l iters -d 'Number of messages (round trips, connections) to time, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -s d -l duration -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l warmup -d 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -s w -l window -d 'Messages in flight [default: 32 up to 4K, else 8]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l mem -d 'Memory of this side\'s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l wait -d 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep' -r -f -a "spin\t'Poll without pause'
adaptive\t'Spin 50 us, then sleep'
sleep\t'Sleep at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l timeout -d 'Time limit for each size [default: 1 minute plus 4 times the duration]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l seed -d 'Seed of the data' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l rounds -d 'Number of interleaved pairs (linkspan, baseline)' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l format -d 'Columns of the table' -r -f -a "human\t'Human-readable'
nccl\t'As nccl-tests prints them'
perftest\t'As perftest prints them'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l report -d 'Write a page with plots, everything in one file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l interval -d 'One round trip per this time' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l baseline -d 'Also measure what the machine can do without linkspan, and print linkspan\'s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l histogram -d 'Print a histogram below each latency row'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l json -d 'Print one JSON document (schema linkspan.perf/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -l json-stream -d 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from jitter" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -s s -l size -d 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -s n -l iters -d 'Number of messages (round trips, connections) to time, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -s d -l duration -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l warmup -d 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -s w -l window -d 'Messages in flight [default: 32 up to 4K, else 8]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l mem -d 'Memory of this side\'s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l wait -d 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep' -r -f -a "spin\t'Poll without pause'
adaptive\t'Spin 50 us, then sleep'
sleep\t'Sleep at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l timeout -d 'Time limit for each size [default: 1 minute plus 4 times the duration]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l seed -d 'Seed of the data' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l rounds -d 'Number of interleaved pairs (linkspan, baseline)' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l format -d 'Columns of the table' -r -f -a "human\t'Human-readable'
nccl\t'As nccl-tests prints them'
perftest\t'As perftest prints them'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l report -d 'Write a page with plots, everything in one file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l direction -d 'Direction of the data, as this side sees it' -r -f -a "send\t'To the peer'
recv\t'From the peer'
both\t'Both ways at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l load-size -d 'Size of the bulk messages' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l baseline -d 'Also measure what the machine can do without linkspan, and print linkspan\'s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l histogram -d 'Print a histogram below each latency row'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l json -d 'Print one JSON document (schema linkspan.perf/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l json-stream -d 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -l bidir -d 'Both ways at once, the same as --direction both'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from load" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -s s -l size -d 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -s n -l iters -d 'Number of messages (round trips, connections) to time, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -s d -l duration -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l warmup -d 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -s w -l window -d 'Messages in flight [default: 32 up to 4K, else 8]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l mem -d 'Memory of this side\'s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l wait -d 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep' -r -f -a "spin\t'Poll without pause'
adaptive\t'Spin 50 us, then sleep'
sleep\t'Sleep at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l timeout -d 'Time limit for each size [default: 1 minute plus 4 times the duration]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l seed -d 'Seed of the data' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l rounds -d 'Number of interleaved pairs (linkspan, baseline)' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l format -d 'Columns of the table' -r -f -a "human\t'Human-readable'
nccl\t'As nccl-tests prints them'
perftest\t'As perftest prints them'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l report -d 'Write a page with plots, everything in one file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l direction -d 'Direction of the data, as this side sees it' -r -f -a "send\t'To the peer'
recv\t'From the peer'
both\t'Both ways at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -s P -l streams -d 'Connections at once' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l baseline -d 'Also measure what the machine can do without linkspan, and print linkspan\'s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l histogram -d 'Print a histogram below each latency row'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l json -d 'Print one JSON document (schema linkspan.perf/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l json-stream -d 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -l bidir -d 'Both ways at once, the same as --direction both'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from multi" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -s s -l size -d 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -s n -l iters -d 'Number of messages (round trips, connections) to time, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -s d -l duration -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l warmup -d 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -s w -l window -d 'Messages in flight [default: 32 up to 4K, else 8]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l mem -d 'Memory of this side\'s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l wait -d 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep' -r -f -a "spin\t'Poll without pause'
adaptive\t'Spin 50 us, then sleep'
sleep\t'Sleep at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l timeout -d 'Time limit for each size [default: 1 minute plus 4 times the duration]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l seed -d 'Seed of the data' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l rounds -d 'Number of interleaved pairs (linkspan, baseline)' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l format -d 'Columns of the table' -r -f -a "human\t'Human-readable'
nccl\t'As nccl-tests prints them'
perftest\t'As perftest prints them'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l report -d 'Write a page with plots, everything in one file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l baseline -d 'Also measure what the machine can do without linkspan, and print linkspan\'s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l histogram -d 'Print a histogram below each latency row'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l json -d 'Print one JSON document (schema linkspan.perf/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -l json-stream -d 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from all" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from compare" -s d -l duration -d 'Length of each measurement' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from compare" -l json -d 'Print JSON (schema linkspan.compare/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from compare" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -l rsh -d 'Program that starts a command on another host' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -l lspan -d 'Path of lspan on the hosts' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -l port -d 'TCP port of the servers' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -l dir -d 'Directory that all ranks share, to find each other [default: the working directory]' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -l timeout -d 'How long rank 0 waits for the other ranks, and how much longer than its duration a measurement may take' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -s d -l duration -d 'Length of each measurement' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -l report -d 'Write a page with a heat map, everything in one file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -l open -d 'The servers accept every host that can reach them; without this, only paired peers and holders of the cluster key'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -l json -d 'Print JSON (schema linkspan.matrix/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from matrix" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -s s -l size -d 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -s n -l iters -d 'Number of messages (round trips, connections) to time, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -s d -l duration -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l warmup -d 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -s w -l window -d 'Messages in flight [default: 32 up to 4K, else 8]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l mem -d 'Memory of this side\'s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l wait -d 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep' -r -f -a "spin\t'Poll without pause'
adaptive\t'Spin 50 us, then sleep'
sleep\t'Sleep at once'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l timeout -d 'Time limit for each size [default: 1 minute plus 4 times the duration]' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l seed -d 'Seed of the data' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l rounds -d 'Number of interleaved pairs (linkspan, baseline)' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l format -d 'Columns of the table' -r -f -a "human\t'Human-readable'
nccl\t'As nccl-tests prints them'
perftest\t'As perftest prints them'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l report -d 'Write a page with plots, everything in one file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l baseline -d 'Also measure what the machine can do without linkspan, and print linkspan\'s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l histogram -d 'Print a histogram below each latency row'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l json -d 'Print one JSON document (schema linkspan.perf/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -l json-stream -d 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from connect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -s s -l size -d 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -s n -l iters -d 'Iterations of each size, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -s d -l duration -d 'Minimum time for each size: the number of iterations grows until one run takes this long' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -l timeout -d 'Time limit for one operation' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -l json -d 'Print JSON in the layout of google-benchmark'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from write" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -s s -l size -d 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -s n -l iters -d 'Iterations of each size, instead of --duration' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -s d -l duration -d 'Minimum time for each size: the number of iterations grows until one run takes this long' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -l path -d 'Path to take [default: LINKSPAN_PATH, else auto]' -r -f -a "auto\t'the best available path'
tcp\t'only TCP'
shm\t'only shared memory'
verbs\t'only RDMA'
thunderbolt\t'only a cable'
devmem\t'only device-memory TCP'"
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -l timeout -d 'Time limit for one operation' -r
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -l no-verify -d 'Do not check the data'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -l json -d 'Print JSON in the layout of google-benchmark'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from read" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Wait for peers and be the other side of their tests'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "bw" -d 'Bandwidth and message rate'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "lat" -d 'Latency: half round trips of a ping-pong'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "jitter" -d 'Variation of latency: a ping-pong at a fixed pace'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "load" -d 'Latency with and without bulk data moving at the same time'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "multi" -d 'Several streams at once'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "all" -d 'bw, lat, jitter, load and multi, one after another'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "compare" -d 'Every path to a peer, one after another, in one table'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "matrix" -d 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "connect" -d 'Connections only: set up and closed one after another'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "write" -d 'One-sided writes into the peer\'s memory, printed like google-benchmark'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "read" -d 'One-sided reads from the peer\'s memory, printed like google-benchmark'
complete -c lspan -n "__fish_lspan_using_subcommand perf; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand selftest" -l plugin -d 'Plugin file to load, in place of those in LD_LIBRARY_PATH and the usual folders' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand selftest" -l load -d 'Be the child that loads a plugin' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand selftest" -l json -d 'Print JSON'
complete -c lspan -n "__fish_lspan_using_subcommand selftest" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand bugreport" -s o -l output -d 'The archive, which must not exist [default: lspan-bugreport-HOST-TIME.tar here]' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand bugreport" -l list -d 'Show what would be in it, and write nothing'
complete -c lspan -n "__fish_lspan_using_subcommand bugreport" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand stats" -l watch -d 'Repeat at this interval, as in 500ms or 2s, with rates' -r
complete -c lspan -n "__fish_lspan_using_subcommand stats" -l json -d 'Print JSON (schema linkspan.stats/1), with --watch one line each time'
complete -c lspan -n "__fish_lspan_using_subcommand stats" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand top" -l every -d 'Update interval, as in 500ms or 2s' -r
complete -c lspan -n "__fish_lspan_using_subcommand top" -l ssh -d 'Show these hosts instead of this one, over ssh' -r
complete -c lspan -n "__fish_lspan_using_subcommand top" -l rsh -d 'Program that runs a command on another host' -r
complete -c lspan -n "__fish_lspan_using_subcommand top" -l lspan -d 'Path of lspan on the other hosts' -r
complete -c lspan -n "__fish_lspan_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand events" -l root -d 'Without the service, on the machine whose sys and proc are here' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand events" -l follow -d 'Keep printing new events, until Ctrl-C'
complete -c lspan -n "__fish_lspan_using_subcommand events" -l all -d 'Events of the jobs of all users'
complete -c lspan -n "__fish_lspan_using_subcommand events" -l json -d 'Print JSON, a line for each event (schema linkspan.event/1)'
complete -c lspan -n "__fish_lspan_using_subcommand events" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand metrics" -l listen -d 'Serve them over HTTP at /metrics; ADDR is a PORT of loopback or IP:PORT' -r
complete -c lspan -n "__fish_lspan_using_subcommand metrics" -l textfile -d 'Write them to a file for node_exporter\'s textfile collector (NAME.prom), replacing its content' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand files; and not __fish_seen_subcommand_from serve help" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand files; and not __fish_seen_subcommand_from serve help" -f -a "serve" -d 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key'
complete -c lspan -n "__fish_lspan_using_subcommand files; and not __fish_seen_subcommand_from serve help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand files; and __fish_seen_subcommand_from serve" -l allow -d 'A service that peers may connect to (lspan pipe, lspan forward): ssh, rsync, sftp, sftp:ro, tcp:PORT; ssh=PORT or rsync=FILE for another port or another rsyncd.conf; repeat it for more' -r
complete -c lspan -n "__fish_lspan_using_subcommand files; and __fish_seen_subcommand_from serve" -l bind -d 'Address where peers find it; repeat it for more [default: loopback and every usable interface]' -r
complete -c lspan -n "__fish_lspan_using_subcommand files; and __fish_seen_subcommand_from serve" -l port -d 'TCP port to listen on' -r
complete -c lspan -n "__fish_lspan_using_subcommand files; and __fish_seen_subcommand_from serve" -l device -d 'Device number, as `lspan status` lists them' -r
complete -c lspan -n "__fish_lspan_using_subcommand files; and __fish_seen_subcommand_from serve" -l as-root -d 'Serve as root: peers can then read, and with :rw write, everything below the directories'
complete -c lspan -n "__fish_lspan_using_subcommand files; and __fish_seen_subcommand_from serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "serve" -d 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key'
complete -c lspan -n "__fish_lspan_using_subcommand files; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand ls" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand ls" -s l -d 'With permissions, size and time'
complete -c lspan -n "__fish_lspan_using_subcommand ls" -l json -d 'Print JSON, one object in a line for each entry (schema linkspan.ls/1)'
complete -c lspan -n "__fish_lspan_using_subcommand ls" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand send" -l max-delete -d 'Maximum number of entries to delete [default: 1000 or a quarter of all, whichever is less, but at least 10]' -r
complete -c lspan -n "__fish_lspan_using_subcommand send" -l exclude -d 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more' -r
complete -c lspan -n "__fish_lspan_using_subcommand send" -l exclude-from -d 'Read such rules from a file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand send" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand send" -l delete -d 'In directories that are sent, move files that the source does not have, and files that are replaced, to the trash of the receiver'
complete -c lspan -n "__fish_lspan_using_subcommand send" -l dry-run -d 'Say what would be sent, and change nothing'
complete -c lspan -n "__fish_lspan_using_subcommand send" -l no-fsync -d 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done'
complete -c lspan -n "__fish_lspan_using_subcommand send" -l xattrs -d 'Also transfer extended attributes of users (user.*)'
complete -c lspan -n "__fish_lspan_using_subcommand send" -l json -d 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
complete -c lspan -n "__fish_lspan_using_subcommand send" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand get" -l max-delete -d 'Maximum number of entries to delete [default: 1000 or a quarter of all, whichever is less, but at least 10]' -r
complete -c lspan -n "__fish_lspan_using_subcommand get" -l exclude -d 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more' -r
complete -c lspan -n "__fish_lspan_using_subcommand get" -l exclude-from -d 'Read such rules from a file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand get" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand get" -l delete -d 'In directories that are sent, move files that the source does not have, and files that are replaced, to the trash of the receiver'
complete -c lspan -n "__fish_lspan_using_subcommand get" -l dry-run -d 'Say what would be sent, and change nothing'
complete -c lspan -n "__fish_lspan_using_subcommand get" -l no-fsync -d 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done'
complete -c lspan -n "__fish_lspan_using_subcommand get" -l xattrs -d 'Also transfer extended attributes of users (user.*)'
complete -c lspan -n "__fish_lspan_using_subcommand get" -l json -d 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
complete -c lspan -n "__fish_lspan_using_subcommand get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l max-delete -d 'Maximum number of entries to delete in one run [default: 1000 or a quarter of all, whichever is less, but at least 10]' -r
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l exclude -d 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more' -r
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l exclude-from -d 'Read such rules from a file' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l init -d 'First run: write a marker into both directories, so that later runs know that they belong together'
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l watch -d 'Keep running until Ctrl-C, and mirror each change after one second without further changes'
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l dry-run -d 'Say what would be sent, and change nothing'
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l no-fsync -d 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done'
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l xattrs -d 'Also transfer extended attributes of users (user.*)'
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -l json -d 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
complete -c lspan -n "__fish_lspan_using_subcommand mirror" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and not __fish_seen_subcommand_from list restore empty help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and not __fish_seen_subcommand_from list restore empty help" -f -a "list" -d 'List the content of the trash: RUN/PATH, one line each'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and not __fish_seen_subcommand_from list restore empty help" -f -a "restore" -d 'Restore files and directories to where they were; nothing is replaced'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and not __fish_seen_subcommand_from list restore empty help" -f -a "empty" -d 'Remove the content of the trash permanently'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and not __fish_seen_subcommand_from list restore empty help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from list" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from list" -l json -d 'Print JSON, one object in a line for each (schema linkspan.trash/1)'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from restore" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from restore" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from empty" -l older -d 'Only what has been there for at least this many days' -r
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from empty" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from empty" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the content of the trash: RUN/PATH, one line each'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from help" -f -a "restore" -d 'Restore files and directories to where they were; nothing is replaced'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from help" -f -a "empty" -d 'Remove the content of the trash permanently'
complete -c lspan -n "__fish_lspan_using_subcommand trash; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand rm" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand rm" -s r -d 'Also directories, with everything in them'
complete -c lspan -n "__fish_lspan_using_subcommand rm" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand mv" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand mv" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand du" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand du" -l json -d 'Print JSON (schema linkspan.du/1)'
complete -c lspan -n "__fish_lspan_using_subcommand du" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand verify" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand verify" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand mount" -l timeout -d 'After this many seconds without an answer a read or write fails with EIO; for names and attributes the limit is 5 s, or this if less' -r
complete -c lspan -n "__fish_lspan_using_subcommand mount" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand mount" -l rw -d 'Mount it writable, if the share is: a write returns when the peer has the data, an fsync when the data is on the peer\'s disk'
complete -c lspan -n "__fish_lspan_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand pipe" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand pipe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand forward" -l port -d 'Port of the peer\'s `lspan files serve`' -r
complete -c lspan -n "__fish_lspan_using_subcommand forward" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand pair" -l as -d 'What the peer is called here [default: as it calls itself]' -r
complete -c lspan -n "__fish_lspan_using_subcommand pair" -l name -d 'What this side calls itself [default: this host\'s name]' -r
complete -c lspan -n "__fish_lspan_using_subcommand pair" -l json -d 'Print JSON, one object in a line (schema linkspan.pair/1)'
complete -c lspan -n "__fish_lspan_using_subcommand pair" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand key; and not __fish_seen_subcommand_from new show list add forget help" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand key; and not __fish_seen_subcommand_from new show list add forget help" -f -a "new" -d 'Make this user\'s key'
complete -c lspan -n "__fish_lspan_using_subcommand key; and not __fish_seen_subcommand_from new show list add forget help" -f -a "show" -d 'Print this user\'s public key, for `lspan key add` on another host'
complete -c lspan -n "__fish_lspan_using_subcommand key; and not __fish_seen_subcommand_from new show list add forget help" -f -a "list" -d 'List the peers that are trusted'
complete -c lspan -n "__fish_lspan_using_subcommand key; and not __fish_seen_subcommand_from new show list add forget help" -f -a "add" -d 'Trust a peer: reads the public key that `lspan key show` printed there from standard input'
complete -c lspan -n "__fish_lspan_using_subcommand key; and not __fish_seen_subcommand_from new show list add forget help" -f -a "forget" -d 'Stop trusting a peer'
complete -c lspan -n "__fish_lspan_using_subcommand key; and not __fish_seen_subcommand_from new show list add forget help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from new" -l replace -d 'Replace an existing key; peers that trust the old key do not trust the new one'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from new" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from show" -l name -d 'What this side calls itself [default: this host\'s name]' -r
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from list" -l json -d 'Print JSON (schema linkspan.keys/1)'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from add" -l as -d 'What the peer is called here [default: as it calls itself]' -r
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from add" -l host -d 'An address or a host name of the peer; repeat it for more' -r
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from forget" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "new" -d 'Make this user\'s key'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "show" -d 'Print this user\'s public key, for `lspan key add` on another host'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the peers that are trusted'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "add" -d 'Trust a peer: reads the public key that `lspan key show` printed there from standard input'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "forget" -d 'Stop trusting a peer'
complete -c lspan -n "__fish_lspan_using_subcommand key; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and not __fish_seen_subcommand_from probe up down help" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and not __fish_seen_subcommand_from probe up down help" -f -a "probe" -d 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and not __fish_seen_subcommand_from probe up down help" -f -a "up" -d 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and not __fish_seen_subcommand_from probe up down help" -f -a "down" -d 'Undo the changes to a network card that a killed `lspan devmem up` left behind'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and not __fish_seen_subcommand_from probe up down help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from probe" -l json -d 'Print JSON'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from probe" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from up" -l queues -d 'Number of receive queues to reserve for GPU memory: the last ones' -r
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from up" -l each -d 'Queues for each process; no two processes share a queue' -r
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from up" -l allow -d 'Users, by number, whose processes may use the queues, in addition to root' -r
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from up" -l folder -d 'Folder of the socket' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from up" -l plan -d 'Show what would be done, and change nothing'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from up" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from down" -l folder -d 'Folder of the journal' -r -F
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from down" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from help" -f -a "probe" -d 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from help" -f -a "up" -d 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from help" -f -a "down" -d 'Undo the changes to a network card that a killed `lspan devmem up` left behind'
complete -c lspan -n "__fish_lspan_using_subcommand devmem; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand link; and not __fish_seen_subcommand_from up allow mode help" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand link; and not __fish_seen_subcommand_from up allow mode help" -f -a "up" -d 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows'
complete -c lspan -n "__fish_lspan_using_subcommand link; and not __fish_seen_subcommand_from up allow mode help" -f -a "allow" -d 'Allow a host to use the driver linkspan.ko'
complete -c lspan -n "__fish_lspan_using_subcommand link; and not __fish_seen_subcommand_from up allow mode help" -f -a "mode" -d 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root'
complete -c lspan -n "__fish_lspan_using_subcommand link; and not __fish_seen_subcommand_from up allow mode help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from up" -l streams -d 'Streams to each host; each connection takes one' -r
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from up" -l first-hop -d 'First HopID (the number of a stream on a cable); each stream takes the next one; the same on both hosts' -r
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from up" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from allow" -l deny -d 'Withdraw the permission permanently'
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from allow" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from mode" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from help" -f -a "up" -d 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows'
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from help" -f -a "allow" -d 'Allow a host to use the driver linkspan.ko'
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from help" -f -a "mode" -d 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root'
complete -c lspan -n "__fish_lspan_using_subcommand link; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand run" -l strict -d 'Fail instead of using a path slower than possible (LINKSPAN_STRICT=1); exit with 3 instead of 0 if a downgrade was counted nevertheless'
complete -c lspan -n "__fish_lspan_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand env" -l for -d 'The same for a container, a pod or a batch script: settings, devices, groups, limits and mounts' -r -f -a "toolbox\t'A toolbox of this host'
podman\t'podman run'
docker\t'docker run'
k8s\t'A pod of Kubernetes'
sbatch\t'A batch script for Slurm'"
complete -c lspan -n "__fish_lspan_using_subcommand env" -l json -d 'Print JSON'
complete -c lspan -n "__fish_lspan_using_subcommand env" -l nccl -d 'Print what NCCL and RCCL need on this machine, as lines for a shell: eval "$(lspan env --nccl)"'
complete -c lspan -n "__fish_lspan_using_subcommand env" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c lspan -n "__fish_lspan_using_subcommand man" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand completions" -s h -l help -d 'Print help'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "status" -d 'Show cables, interfaces, RDMA devices and GPUs, and why each path is or is not used'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "mesh" -d 'Show the mesh of hosts joined by direct cables: which hosts a cable connects, the route of each pair, what is wrong and the command that fixes it'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "doctor" -d 'Find what is wrong with this machine and its cables, what it costs and the command that fixes it'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "wait" -d 'Wait until a peer can be reached: a cable has a host at its other end, or a host answers'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "perf" -d 'Measure a path'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "selftest" -d 'Test every part that can be tested here: one line each of pass, fail or skip'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "bugreport" -d 'Collect information about this machine and linkspan in one archive for a bug report, without secrets'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "stats" -d 'Show what running processes have moved over linkspan'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "top" -d 'Watch what running processes move over linkspan, on this host or on several'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "events" -d 'Show events of cables and jobs: plugged, unplugged, speed changed, paths lost, recovered or downgraded'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "metrics" -d 'Print the statistics in the format of Prometheus, or serve them over HTTP'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "files" -d 'Serve directories and services of this host to peers'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "ls" -d 'List a peer\'s shares, or what is in one'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "send" -d 'Send files and directory trees to a peer\'s share; an interrupted transfer resumes where it stopped'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "get" -d 'Get files and directory trees from a peer\'s share; an interrupted transfer resumes where it stopped'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "mirror" -d 'Make a directory equal to another one, here or at a peer; what is deleted or replaced goes to the trash'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "trash" -d 'List, restore or remove what was deleted or replaced'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "rm" -d 'Remove files or directories of a peer\'s share, not to the trash'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "mv" -d 'Rename a file or directory of a peer\'s share; nothing is replaced'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "du" -d 'Count files and bytes below a directory of a peer\'s share'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "verify" -d 'Compare local files with a peer\'s, both read back from the disk'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "mount" -d 'Mount a peer\'s share at a directory, read-only, or writable with --rw'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "pipe" -d 'Connect standard input and output to a service of a peer'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "forward" -d 'Forward connections from a port of this host to a service of a peer, until Ctrl-C'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "pair" -d 'Pair with a user of another host, so that each trusts the other from then on'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "key" -d 'Manage this user\'s key and the peers that are trusted'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "devmem" -d 'Device-memory TCP: payload from the network card straight into GPU memory'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "link" -d 'Thunderbolt and USB4 cables: allow hosts, set up streams, choose direct use or a network interface'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "run" -d 'Run a command with the environment that makes NCCL and RCCL use linkspan, and print which paths it used'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "env" -d 'Show every LINKSPAN_ environment variable, its value here and what it does; or the variables that NCCL and RCCL need'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "man" -d 'Write manual pages'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "completions" -d 'Write shell completions'
complete -c lspan -n "__fish_lspan_using_subcommand help; and not __fish_seen_subcommand_from status mesh doctor wait perf selftest bugreport stats top events metrics files ls send get mirror trash rm mv du verify mount pipe forward pair key devmem link run env man completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "serve" -d 'Wait for peers and be the other side of their tests'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "bw" -d 'Bandwidth and message rate'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "lat" -d 'Latency: half round trips of a ping-pong'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "jitter" -d 'Variation of latency: a ping-pong at a fixed pace'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "load" -d 'Latency with and without bulk data moving at the same time'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "multi" -d 'Several streams at once'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "all" -d 'bw, lat, jitter, load and multi, one after another'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "compare" -d 'Every path to a peer, one after another, in one table'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "matrix" -d 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "connect" -d 'Connections only: set up and closed one after another'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "write" -d 'One-sided writes into the peer\'s memory, printed like google-benchmark'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from perf" -f -a "read" -d 'One-sided reads from the peer\'s memory, printed like google-benchmark'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from files" -f -a "serve" -d 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from trash" -f -a "list" -d 'List the content of the trash: RUN/PATH, one line each'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from trash" -f -a "restore" -d 'Restore files and directories to where they were; nothing is replaced'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from trash" -f -a "empty" -d 'Remove the content of the trash permanently'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "new" -d 'Make this user\'s key'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "show" -d 'Print this user\'s public key, for `lspan key add` on another host'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "list" -d 'List the peers that are trusted'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "add" -d 'Trust a peer: reads the public key that `lspan key show` printed there from standard input'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from key" -f -a "forget" -d 'Stop trusting a peer'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from devmem" -f -a "probe" -d 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from devmem" -f -a "up" -d 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from devmem" -f -a "down" -d 'Undo the changes to a network card that a killed `lspan devmem up` left behind'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from link" -f -a "up" -d 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from link" -f -a "allow" -d 'Allow a host to use the driver linkspan.ko'
complete -c lspan -n "__fish_lspan_using_subcommand help; and __fish_seen_subcommand_from link" -f -a "mode" -d 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root'
