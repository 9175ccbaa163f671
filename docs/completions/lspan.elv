
use builtin;
use str;

set edit:completion:arg-completer[lspan] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'lspan'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'lspan'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand -V 'Print version'
            cand --version 'Print version'
            cand status 'Show cables, interfaces, RDMA devices and GPUs, and why each path is or is not used'
            cand mesh 'Show the mesh of hosts joined by direct cables: which hosts a cable connects, the route of each pair, what is wrong and the command that fixes it'
            cand doctor 'Find what is wrong with this machine and its cables, what it costs and the command that fixes it'
            cand wait 'Wait until a peer can be reached: a cable has a host at its other end, or a host answers'
            cand perf 'Measure a path'
            cand selftest 'Test every part that can be tested here: one line each of pass, fail or skip'
            cand bugreport 'Collect information about this machine and linkspan in one archive for a bug report, without secrets'
            cand stats 'Show what running processes have moved over linkspan'
            cand top 'Watch what running processes move over linkspan, on this host or on several'
            cand events 'Show events of cables and jobs: plugged, unplugged, speed changed, paths lost, recovered or downgraded'
            cand metrics 'Print the statistics in the format of Prometheus, or serve them over HTTP'
            cand files 'Serve directories and services of this host to peers'
            cand ls 'List a peer''s shares, or what is in one'
            cand send 'Send files and directory trees to a peer''s share; an interrupted transfer resumes where it stopped'
            cand get 'Get files and directory trees from a peer''s share; an interrupted transfer resumes where it stopped'
            cand mirror 'Make a directory equal to another one, here or at a peer; what is deleted or replaced goes to the trash'
            cand trash 'List, restore or remove what was deleted or replaced'
            cand rm 'Remove files or directories of a peer''s share, not to the trash'
            cand mv 'Rename a file or directory of a peer''s share; nothing is replaced'
            cand du 'Count files and bytes below a directory of a peer''s share'
            cand verify 'Compare local files with a peer''s, both read back from the disk'
            cand mount 'Mount a peer''s share at a directory, read-only, or writable with --rw'
            cand pipe 'Connect standard input and output to a service of a peer'
            cand forward 'Forward connections from a port of this host to a service of a peer, until Ctrl-C'
            cand pair 'Pair with a user of another host, so that each trusts the other from then on'
            cand key 'Manage this user''s key and the peers that are trusted'
            cand devmem 'Device-memory TCP: payload from the network card straight into GPU memory'
            cand link 'Thunderbolt and USB4 cables: allow hosts, set up streams, choose direct use or a network interface'
            cand run 'Run a command with the environment that makes NCCL and RCCL use linkspan, and print which paths it used'
            cand env 'Show every LINKSPAN_ environment variable, its value here and what it does; or the variables that NCCL and RCCL need'
            cand man 'Write manual pages'
            cand completions 'Write shell completions'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;status'= {
            cand --json 'Print JSON (schema linkspan.status/1)'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;mesh'= {
            cand --wait 'How long to listen before the mesh is shown'
            cand --json 'Print JSON (schema linkspan.mesh/1)'
            cand --check 'Measure every cable, also those between other hosts'
            cand --serve 'Keep running: find neighbours and relay for them until Ctrl-C'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;doctor'= {
            cand --merge 'Check several hosts together, from the output of `lspan doctor --json` on each'
            cand --root 'Folder with the sys, proc, dev, etc, run and lib of another machine'
            cand --json 'Print JSON (schema linkspan.doctor/1)'
            cand --speed 'Also measure each path to PEER, which must run `lspan perf serve`, and compare with earlier results of this pair and equal rails with each other. Measures nothing while a process has connections over linkspan'
            cand --no-probe 'Send no packets'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;wait'= {
            cand --timeout 'Give up after this time, as in 30s [default: wait without limit]'
            cand --serving 'Wait until `lspan perf serve` answers there'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand serve 'Wait for peers and be the other side of their tests'
            cand bw 'Bandwidth and message rate'
            cand lat 'Latency: half round trips of a ping-pong'
            cand jitter 'Variation of latency: a ping-pong at a fixed pace'
            cand load 'Latency with and without bulk data moving at the same time'
            cand multi 'Several streams at once'
            cand all 'bw, lat, jitter, load and multi, one after another'
            cand compare 'Every path to a peer, one after another, in one table'
            cand matrix 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
            cand connect 'Connections only: set up and closed one after another'
            cand write 'One-sided writes into the peer''s memory, printed like google-benchmark'
            cand read 'One-sided reads from the peer''s memory, printed like google-benchmark'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;perf;serve'= {
            cand --bind 'Address to listen on; repeat it for more [default: loopback; with a cluster key or paired peers every usable interface]'
            cand --port 'TCP port to listen on'
            cand --memory 'Memory for the tests of all clients together, MiB [default: 6144, or half of this host''s]'
            cand --idle 'End the session of a client that is silent for this time [default: 1m]'
            cand --device 'Device number, as `lspan status` lists them'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N'
            cand --path 'As in the other tests, for the parent'
            cand --open 'Accept every host that can reach this one, paired or not; without --bind listens on every usable interface and on loopback. If a cluster key (LINKSPAN_PSK_FILE) is set, clients still need it'
            cand --once 'End after one session'
            cand --follow 'End when standard input ends, as that of a command by ssh does'
            cand --stdio 'Be the other side of a parent process: the handle goes to stdout, the end of stdin ends us'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;bw'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Number of messages (round trips, connections) to time, instead of --duration'
            cand --iters 'Number of messages (round trips, connections) to time, instead of --duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for each size [default: 1 minute plus 4 times the duration]'
            cand --seed 'Seed of the data'
            cand --rounds 'Number of interleaved pairs (linkspan, baseline)'
            cand --format 'Columns of the table'
            cand --report 'Write a page with plots, everything in one file'
            cand --direction 'Direction of the data, as this side sees it'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
            cand --bidir 'Both ways at once, the same as --direction both'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;lat'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Number of messages (round trips, connections) to time, instead of --duration'
            cand --iters 'Number of messages (round trips, connections) to time, instead of --duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for each size [default: 1 minute plus 4 times the duration]'
            cand --seed 'Seed of the data'
            cand --rounds 'Number of interleaved pairs (linkspan, baseline)'
            cand --format 'Columns of the table'
            cand --report 'Write a page with plots, everything in one file'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;jitter'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Number of messages (round trips, connections) to time, instead of --duration'
            cand --iters 'Number of messages (round trips, connections) to time, instead of --duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for each size [default: 1 minute plus 4 times the duration]'
            cand --seed 'Seed of the data'
            cand --rounds 'Number of interleaved pairs (linkspan, baseline)'
            cand --format 'Columns of the table'
            cand --report 'Write a page with plots, everything in one file'
            cand --interval 'One round trip per this time'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;load'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Number of messages (round trips, connections) to time, instead of --duration'
            cand --iters 'Number of messages (round trips, connections) to time, instead of --duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for each size [default: 1 minute plus 4 times the duration]'
            cand --seed 'Seed of the data'
            cand --rounds 'Number of interleaved pairs (linkspan, baseline)'
            cand --format 'Columns of the table'
            cand --report 'Write a page with plots, everything in one file'
            cand --direction 'Direction of the data, as this side sees it'
            cand --load-size 'Size of the bulk messages'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
            cand --bidir 'Both ways at once, the same as --direction both'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;multi'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Number of messages (round trips, connections) to time, instead of --duration'
            cand --iters 'Number of messages (round trips, connections) to time, instead of --duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for each size [default: 1 minute plus 4 times the duration]'
            cand --seed 'Seed of the data'
            cand --rounds 'Number of interleaved pairs (linkspan, baseline)'
            cand --format 'Columns of the table'
            cand --report 'Write a page with plots, everything in one file'
            cand --direction 'Direction of the data, as this side sees it'
            cand -P 'Connections at once'
            cand --streams 'Connections at once'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
            cand --bidir 'Both ways at once, the same as --direction both'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;all'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Number of messages (round trips, connections) to time, instead of --duration'
            cand --iters 'Number of messages (round trips, connections) to time, instead of --duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for each size [default: 1 minute plus 4 times the duration]'
            cand --seed 'Seed of the data'
            cand --rounds 'Number of interleaved pairs (linkspan, baseline)'
            cand --format 'Columns of the table'
            cand --report 'Write a page with plots, everything in one file'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;compare'= {
            cand -d 'Length of each measurement'
            cand --duration 'Length of each measurement'
            cand --json 'Print JSON (schema linkspan.compare/1)'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;perf;matrix'= {
            cand --rsh 'Program that starts a command on another host'
            cand --lspan 'Path of lspan on the hosts'
            cand --port 'TCP port of the servers'
            cand --dir 'Directory that all ranks share, to find each other [default: the working directory]'
            cand --timeout 'How long rank 0 waits for the other ranks, and how much longer than its duration a measurement may take'
            cand -d 'Length of each measurement'
            cand --duration 'Length of each measurement'
            cand --report 'Write a page with a heat map, everything in one file'
            cand --open 'The servers accept every host that can reach them; without this, only paired peers and holders of the cluster key'
            cand --json 'Print JSON (schema linkspan.matrix/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;connect'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Number of messages (round trips, connections) to time, instead of --duration'
            cand --iters 'Number of messages (round trips, connections) to time, instead of --duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for each size [default: 1 minute plus 4 times the duration]'
            cand --seed 'Seed of the data'
            cand --rounds 'Number of interleaved pairs (linkspan, baseline)'
            cand --format 'Columns of the table'
            cand --report 'Write a page with plots, everything in one file'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;write'= {
            cand -s 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4'
            cand --size 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4'
            cand -n 'Iterations of each size, instead of --duration'
            cand --iters 'Iterations of each size, instead of --duration'
            cand -d 'Minimum time for each size: the number of iterations grows until one run takes this long'
            cand --duration 'Minimum time for each size: the number of iterations grows until one run takes this long'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for one operation'
            cand --no-verify 'Do not check the data'
            cand --json 'Print JSON in the layout of google-benchmark'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;read'= {
            cand -s 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4'
            cand --size 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4'
            cand -n 'Iterations of each size, instead of --duration'
            cand --iters 'Iterations of each size, instead of --duration'
            cand -d 'Minimum time for each size: the number of iterations grows until one run takes this long'
            cand --duration 'Minimum time for each size: the number of iterations grows until one run takes this long'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Time limit for one operation'
            cand --no-verify 'Do not check the data'
            cand --json 'Print JSON in the layout of google-benchmark'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;help'= {
            cand serve 'Wait for peers and be the other side of their tests'
            cand bw 'Bandwidth and message rate'
            cand lat 'Latency: half round trips of a ping-pong'
            cand jitter 'Variation of latency: a ping-pong at a fixed pace'
            cand load 'Latency with and without bulk data moving at the same time'
            cand multi 'Several streams at once'
            cand all 'bw, lat, jitter, load and multi, one after another'
            cand compare 'Every path to a peer, one after another, in one table'
            cand matrix 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
            cand connect 'Connections only: set up and closed one after another'
            cand write 'One-sided writes into the peer''s memory, printed like google-benchmark'
            cand read 'One-sided reads from the peer''s memory, printed like google-benchmark'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;perf;help;serve'= {
        }
        &'lspan;perf;help;bw'= {
        }
        &'lspan;perf;help;lat'= {
        }
        &'lspan;perf;help;jitter'= {
        }
        &'lspan;perf;help;load'= {
        }
        &'lspan;perf;help;multi'= {
        }
        &'lspan;perf;help;all'= {
        }
        &'lspan;perf;help;compare'= {
        }
        &'lspan;perf;help;matrix'= {
        }
        &'lspan;perf;help;connect'= {
        }
        &'lspan;perf;help;write'= {
        }
        &'lspan;perf;help;read'= {
        }
        &'lspan;perf;help;help'= {
        }
        &'lspan;selftest'= {
            cand --plugin 'Plugin file to load, in place of those in LD_LIBRARY_PATH and the usual folders'
            cand --load 'Be the child that loads a plugin'
            cand --json 'Print JSON'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;bugreport'= {
            cand -o 'The archive, which must not exist [default: lspan-bugreport-HOST-TIME.tar here]'
            cand --output 'The archive, which must not exist [default: lspan-bugreport-HOST-TIME.tar here]'
            cand --list 'Show what would be in it, and write nothing'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;stats'= {
            cand --watch 'Repeat at this interval, as in 500ms or 2s, with rates'
            cand --json 'Print JSON (schema linkspan.stats/1), with --watch one line each time'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;top'= {
            cand --every 'Update interval, as in 500ms or 2s'
            cand --ssh 'Show these hosts instead of this one, over ssh'
            cand --rsh 'Program that runs a command on another host'
            cand --lspan 'Path of lspan on the other hosts'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;events'= {
            cand --root 'Without the service, on the machine whose sys and proc are here'
            cand --follow 'Keep printing new events, until Ctrl-C'
            cand --all 'Events of the jobs of all users'
            cand --json 'Print JSON, a line for each event (schema linkspan.event/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;metrics'= {
            cand --listen 'Serve them over HTTP at /metrics; ADDR is a PORT of loopback or IP:PORT'
            cand --textfile 'Write them to a file for node_exporter''s textfile collector (NAME.prom), replacing its content'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;files'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand serve 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;files;serve'= {
            cand --allow 'A service that peers may connect to (lspan pipe, lspan forward): ssh, rsync, sftp, sftp:ro, tcp:PORT; ssh=PORT or rsync=FILE for another port or another rsyncd.conf; repeat it for more'
            cand --bind 'Address where peers find it; repeat it for more [default: loopback and every usable interface]'
            cand --port 'TCP port to listen on'
            cand --device 'Device number, as `lspan status` lists them'
            cand --as-root 'Serve as root: peers can then read, and with :rw write, everything below the directories'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;files;help'= {
            cand serve 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;files;help;serve'= {
        }
        &'lspan;files;help;help'= {
        }
        &'lspan;ls'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -l 'With permissions, size and time'
            cand --json 'Print JSON, one object in a line for each entry (schema linkspan.ls/1)'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;send'= {
            cand --max-delete 'Maximum number of entries to delete [default: 1000 or a quarter of all, whichever is less, but at least 10]'
            cand --exclude 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more'
            cand --exclude-from 'Read such rules from a file'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --delete 'In directories that are sent, move files that the source does not have, and files that are replaced, to the trash of the receiver'
            cand --dry-run 'Say what would be sent, and change nothing'
            cand --no-fsync 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done'
            cand --xattrs 'Also transfer extended attributes of users (user.*)'
            cand --json 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;get'= {
            cand --max-delete 'Maximum number of entries to delete [default: 1000 or a quarter of all, whichever is less, but at least 10]'
            cand --exclude 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more'
            cand --exclude-from 'Read such rules from a file'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --delete 'In directories that are sent, move files that the source does not have, and files that are replaced, to the trash of the receiver'
            cand --dry-run 'Say what would be sent, and change nothing'
            cand --no-fsync 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done'
            cand --xattrs 'Also transfer extended attributes of users (user.*)'
            cand --json 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;mirror'= {
            cand --max-delete 'Maximum number of entries to delete in one run [default: 1000 or a quarter of all, whichever is less, but at least 10]'
            cand --exclude 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more'
            cand --exclude-from 'Read such rules from a file'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --init 'First run: write a marker into both directories, so that later runs know that they belong together'
            cand --watch 'Keep running until Ctrl-C, and mirror each change after one second without further changes'
            cand --dry-run 'Say what would be sent, and change nothing'
            cand --no-fsync 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done'
            cand --xattrs 'Also transfer extended attributes of users (user.*)'
            cand --json 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;trash'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand list 'List the content of the trash: RUN/PATH, one line each'
            cand restore 'Restore files and directories to where they were; nothing is replaced'
            cand empty 'Remove the content of the trash permanently'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;trash;list'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --json 'Print JSON, one object in a line for each (schema linkspan.trash/1)'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;trash;restore'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;trash;empty'= {
            cand --older 'Only what has been there for at least this many days'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;trash;help'= {
            cand list 'List the content of the trash: RUN/PATH, one line each'
            cand restore 'Restore files and directories to where they were; nothing is replaced'
            cand empty 'Remove the content of the trash permanently'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;trash;help;list'= {
        }
        &'lspan;trash;help;restore'= {
        }
        &'lspan;trash;help;empty'= {
        }
        &'lspan;trash;help;help'= {
        }
        &'lspan;rm'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -r 'Also directories, with everything in them'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;mv'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;du'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --json 'Print JSON (schema linkspan.du/1)'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;verify'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;mount'= {
            cand --timeout 'After this many seconds without an answer a read or write fails with EIO; for names and attributes the limit is 5 s, or this if less'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --rw 'Mount it writable, if the share is: a write returns when the peer has the data, an fsync when the data is on the peer''s disk'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;pipe'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;forward'= {
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;pair'= {
            cand --as 'What the peer is called here [default: as it calls itself]'
            cand --name 'What this side calls itself [default: this host''s name]'
            cand --json 'Print JSON, one object in a line (schema linkspan.pair/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;key'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand new 'Make this user''s key'
            cand show 'Print this user''s public key, for `lspan key add` on another host'
            cand list 'List the peers that are trusted'
            cand add 'Trust a peer: reads the public key that `lspan key show` printed there from standard input'
            cand forget 'Stop trusting a peer'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;key;new'= {
            cand --replace 'Replace an existing key; peers that trust the old key do not trust the new one'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;key;show'= {
            cand --name 'What this side calls itself [default: this host''s name]'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;key;list'= {
            cand --json 'Print JSON (schema linkspan.keys/1)'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;key;add'= {
            cand --as 'What the peer is called here [default: as it calls itself]'
            cand --host 'An address or a host name of the peer; repeat it for more'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;key;forget'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;key;help'= {
            cand new 'Make this user''s key'
            cand show 'Print this user''s public key, for `lspan key add` on another host'
            cand list 'List the peers that are trusted'
            cand add 'Trust a peer: reads the public key that `lspan key show` printed there from standard input'
            cand forget 'Stop trusting a peer'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;key;help;new'= {
        }
        &'lspan;key;help;show'= {
        }
        &'lspan;key;help;list'= {
        }
        &'lspan;key;help;add'= {
        }
        &'lspan;key;help;forget'= {
        }
        &'lspan;key;help;help'= {
        }
        &'lspan;devmem'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand probe 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it'
            cand up 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends'
            cand down 'Undo the changes to a network card that a killed `lspan devmem up` left behind'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;devmem;probe'= {
            cand --json 'Print JSON'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;devmem;up'= {
            cand --queues 'Number of receive queues to reserve for GPU memory: the last ones'
            cand --each 'Queues for each process; no two processes share a queue'
            cand --allow 'Users, by number, whose processes may use the queues, in addition to root'
            cand --folder 'Folder of the socket'
            cand --plan 'Show what would be done, and change nothing'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;devmem;down'= {
            cand --folder 'Folder of the journal'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;devmem;help'= {
            cand probe 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it'
            cand up 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends'
            cand down 'Undo the changes to a network card that a killed `lspan devmem up` left behind'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;devmem;help;probe'= {
        }
        &'lspan;devmem;help;up'= {
        }
        &'lspan;devmem;help;down'= {
        }
        &'lspan;devmem;help;help'= {
        }
        &'lspan;link'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand up 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows'
            cand allow 'Allow a host to use the driver linkspan.ko'
            cand mode 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;link;up'= {
            cand --streams 'Streams to each host; each connection takes one'
            cand --first-hop 'First HopID (the number of a stream on a cable); each stream takes the next one; the same on both hosts'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;link;allow'= {
            cand --deny 'Withdraw the permission permanently'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;link;mode'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;link;help'= {
            cand up 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows'
            cand allow 'Allow a host to use the driver linkspan.ko'
            cand mode 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;link;help;up'= {
        }
        &'lspan;link;help;allow'= {
        }
        &'lspan;link;help;mode'= {
        }
        &'lspan;link;help;help'= {
        }
        &'lspan;run'= {
            cand --strict 'Fail instead of using a path slower than possible (LINKSPAN_STRICT=1); exit with 3 instead of 0 if a downgrade was counted nevertheless'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;env'= {
            cand --for 'The same for a container, a pod or a batch script: settings, devices, groups, limits and mounts'
            cand --json 'Print JSON'
            cand --nccl 'Print what NCCL and RCCL need on this machine, as lines for a shell: eval "$(lspan env --nccl)"'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;man'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;completions'= {
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;help'= {
            cand status 'Show cables, interfaces, RDMA devices and GPUs, and why each path is or is not used'
            cand mesh 'Show the mesh of hosts joined by direct cables: which hosts a cable connects, the route of each pair, what is wrong and the command that fixes it'
            cand doctor 'Find what is wrong with this machine and its cables, what it costs and the command that fixes it'
            cand wait 'Wait until a peer can be reached: a cable has a host at its other end, or a host answers'
            cand perf 'Measure a path'
            cand selftest 'Test every part that can be tested here: one line each of pass, fail or skip'
            cand bugreport 'Collect information about this machine and linkspan in one archive for a bug report, without secrets'
            cand stats 'Show what running processes have moved over linkspan'
            cand top 'Watch what running processes move over linkspan, on this host or on several'
            cand events 'Show events of cables and jobs: plugged, unplugged, speed changed, paths lost, recovered or downgraded'
            cand metrics 'Print the statistics in the format of Prometheus, or serve them over HTTP'
            cand files 'Serve directories and services of this host to peers'
            cand ls 'List a peer''s shares, or what is in one'
            cand send 'Send files and directory trees to a peer''s share; an interrupted transfer resumes where it stopped'
            cand get 'Get files and directory trees from a peer''s share; an interrupted transfer resumes where it stopped'
            cand mirror 'Make a directory equal to another one, here or at a peer; what is deleted or replaced goes to the trash'
            cand trash 'List, restore or remove what was deleted or replaced'
            cand rm 'Remove files or directories of a peer''s share, not to the trash'
            cand mv 'Rename a file or directory of a peer''s share; nothing is replaced'
            cand du 'Count files and bytes below a directory of a peer''s share'
            cand verify 'Compare local files with a peer''s, both read back from the disk'
            cand mount 'Mount a peer''s share at a directory, read-only, or writable with --rw'
            cand pipe 'Connect standard input and output to a service of a peer'
            cand forward 'Forward connections from a port of this host to a service of a peer, until Ctrl-C'
            cand pair 'Pair with a user of another host, so that each trusts the other from then on'
            cand key 'Manage this user''s key and the peers that are trusted'
            cand devmem 'Device-memory TCP: payload from the network card straight into GPU memory'
            cand link 'Thunderbolt and USB4 cables: allow hosts, set up streams, choose direct use or a network interface'
            cand run 'Run a command with the environment that makes NCCL and RCCL use linkspan, and print which paths it used'
            cand env 'Show every LINKSPAN_ environment variable, its value here and what it does; or the variables that NCCL and RCCL need'
            cand man 'Write manual pages'
            cand completions 'Write shell completions'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;help;status'= {
        }
        &'lspan;help;mesh'= {
        }
        &'lspan;help;doctor'= {
        }
        &'lspan;help;wait'= {
        }
        &'lspan;help;perf'= {
            cand serve 'Wait for peers and be the other side of their tests'
            cand bw 'Bandwidth and message rate'
            cand lat 'Latency: half round trips of a ping-pong'
            cand jitter 'Variation of latency: a ping-pong at a fixed pace'
            cand load 'Latency with and without bulk data moving at the same time'
            cand multi 'Several streams at once'
            cand all 'bw, lat, jitter, load and multi, one after another'
            cand compare 'Every path to a peer, one after another, in one table'
            cand matrix 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
            cand connect 'Connections only: set up and closed one after another'
            cand write 'One-sided writes into the peer''s memory, printed like google-benchmark'
            cand read 'One-sided reads from the peer''s memory, printed like google-benchmark'
        }
        &'lspan;help;perf;serve'= {
        }
        &'lspan;help;perf;bw'= {
        }
        &'lspan;help;perf;lat'= {
        }
        &'lspan;help;perf;jitter'= {
        }
        &'lspan;help;perf;load'= {
        }
        &'lspan;help;perf;multi'= {
        }
        &'lspan;help;perf;all'= {
        }
        &'lspan;help;perf;compare'= {
        }
        &'lspan;help;perf;matrix'= {
        }
        &'lspan;help;perf;connect'= {
        }
        &'lspan;help;perf;write'= {
        }
        &'lspan;help;perf;read'= {
        }
        &'lspan;help;selftest'= {
        }
        &'lspan;help;bugreport'= {
        }
        &'lspan;help;stats'= {
        }
        &'lspan;help;top'= {
        }
        &'lspan;help;events'= {
        }
        &'lspan;help;metrics'= {
        }
        &'lspan;help;files'= {
            cand serve 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key'
        }
        &'lspan;help;files;serve'= {
        }
        &'lspan;help;ls'= {
        }
        &'lspan;help;send'= {
        }
        &'lspan;help;get'= {
        }
        &'lspan;help;mirror'= {
        }
        &'lspan;help;trash'= {
            cand list 'List the content of the trash: RUN/PATH, one line each'
            cand restore 'Restore files and directories to where they were; nothing is replaced'
            cand empty 'Remove the content of the trash permanently'
        }
        &'lspan;help;trash;list'= {
        }
        &'lspan;help;trash;restore'= {
        }
        &'lspan;help;trash;empty'= {
        }
        &'lspan;help;rm'= {
        }
        &'lspan;help;mv'= {
        }
        &'lspan;help;du'= {
        }
        &'lspan;help;verify'= {
        }
        &'lspan;help;mount'= {
        }
        &'lspan;help;pipe'= {
        }
        &'lspan;help;forward'= {
        }
        &'lspan;help;pair'= {
        }
        &'lspan;help;key'= {
            cand new 'Make this user''s key'
            cand show 'Print this user''s public key, for `lspan key add` on another host'
            cand list 'List the peers that are trusted'
            cand add 'Trust a peer: reads the public key that `lspan key show` printed there from standard input'
            cand forget 'Stop trusting a peer'
        }
        &'lspan;help;key;new'= {
        }
        &'lspan;help;key;show'= {
        }
        &'lspan;help;key;list'= {
        }
        &'lspan;help;key;add'= {
        }
        &'lspan;help;key;forget'= {
        }
        &'lspan;help;devmem'= {
            cand probe 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it'
            cand up 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends'
            cand down 'Undo the changes to a network card that a killed `lspan devmem up` left behind'
        }
        &'lspan;help;devmem;probe'= {
        }
        &'lspan;help;devmem;up'= {
        }
        &'lspan;help;devmem;down'= {
        }
        &'lspan;help;link'= {
            cand up 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows'
            cand allow 'Allow a host to use the driver linkspan.ko'
            cand mode 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root'
        }
        &'lspan;help;link;up'= {
        }
        &'lspan;help;link;allow'= {
        }
        &'lspan;help;link;mode'= {
        }
        &'lspan;help;run'= {
        }
        &'lspan;help;env'= {
        }
        &'lspan;help;man'= {
        }
        &'lspan;help;completions'= {
        }
        &'lspan;help;help'= {
        }
    ]
    $completions[$command]
}
