
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
            cand mesh 'Show the mesh of hosts joined by direct cables: who is cabled to whom, how each pair reaches each other, what is wrong and the command that corrects it'
            cand doctor 'Say what is wrong with this machine and its cables, what it costs and the command that mends it'
            cand wait 'Wait until a peer is there: a cable has a host at its other end, or a host answers'
            cand perf 'Measure a path'
            cand selftest 'Test every part that can be tested here: one line each of pass, fail or skip'
            cand bugreport 'Put what is known of this machine and linkspan into one archive for a report, without secrets'
            cand stats 'Show what running processes have moved over linkspan'
            cand top 'Watch what running processes move over linkspan, on this host or on several'
            cand events 'Show what happened to cables and jobs: plugged, unplugged, other speed, paths lost, back and slower than they could be'
            cand metrics 'Print the statistics as Prometheus reads them, or serve them over HTTP'
            cand files 'Serve directories and services of this host to peers'
            cand ls 'List a peer''s shares, or what is in one'
            cand send 'Send files and trees to a peer''s share; an interrupted transfer goes on where it was'
            cand get 'Get files and trees from a peer''s share; an interrupted transfer goes on where it was'
            cand mirror 'Keep a directory like another one, here or at a peer; what is deleted or replaced goes to the trash'
            cand trash 'Show, take back or remove what was deleted or replaced'
            cand rm 'Remove entries of a peer''s share, for good'
            cand mv 'Give an entry of a peer''s share another name; nothing is replaced'
            cand du 'Count files and bytes below a directory of a peer''s share'
            cand verify 'Compare local files with a peer''s, both read back from the disk'
            cand mount 'Mount a peer''s share at a directory, read-only or with --rw to be written'
            cand pipe 'Join standard input and output to a service of a peer'
            cand forward 'Take connections to a port of this host to a service of a peer, until Ctrl-C'
            cand pair 'Pair with a user of another host, so that each trusts the other from then on'
            cand key 'This user''s key, and the peers that are trusted'
            cand devmem 'Device-memory TCP: payload from the network card straight into GPU memory'
            cand link 'Thunderbolt and USB4 cables: allow hosts, set streams up, choose between programs and network'
            cand run 'Run a command with what NCCL and RCCL need to use linkspan, and say which paths it used'
            cand env 'Show every LINKSPAN_ environment name, its value here and what it does; or what NCCL and RCCL need'
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
            cand --check 'Measure every cable, those between other hosts too'
            cand --serve 'Keep running: find neighbours and relay for them until Ctrl-C'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;doctor'= {
            cand --merge 'Judge several hosts together, from the output of `lspan doctor --json` on each'
            cand --root 'Folder with the sys, proc, dev, etc, run and lib of another machine'
            cand --json 'Print JSON (schema linkspan.doctor/1)'
            cand --speed 'Measure each way to PEER too, which runs `lspan perf serve`: against what this pair did before, and equal rails against each other. Nothing is measured while a process has connections over linkspan'
            cand --no-probe 'Send nothing'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;wait'= {
            cand --timeout 'Give up after this time, as in 30s [default: wait without limit]'
            cand --serving 'Until `lspan perf serve` answers there'
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
            cand load 'Latency while bulk data moves, beside latency while it does not'
            cand multi 'Several streams at once'
            cand all 'bw, lat, jitter, load and multi, one after another'
            cand compare 'Every way that there is to a peer, one after another, in one table'
            cand matrix 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
            cand connect 'Connections only: set up and closed one after another'
            cand write 'One-sided writes into the peer''s memory, as the table of google-benchmark'
            cand read 'One-sided reads from the peer''s memory, as the table of google-benchmark'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;perf;serve'= {
            cand --bind 'Address to listen on; repeat it for more [default: loopback; with a cluster key or paired peers every usable interface]'
            cand --port 'TCP port to listen on'
            cand --memory 'Memory for the tests of all clients together, MiB [default: 6144, or half of this host''s]'
            cand --idle 'End the session of a client that is silent for this time [default: 1m]'
            cand --device 'Device number, as `lspan status` lists them'
            cand --mem 'Memory of this side''s messages, as in the tests'
            cand --path 'As in the other tests, for the parent'
            cand --open 'Let every host in that reaches an address of ours, paired or not; without --bind on every usable interface and on loopback. A cluster key (LINKSPAN_PSK_FILE) is needed all the same where it is set'
            cand --once 'End after one session'
            cand --follow 'End when standard input ends, as that of a command by ssh does'
            cand --stdio 'Be the other side of a parent process: the handle goes to stdout, the end of stdin ends us'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;bw'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand --iters 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB of them, 2 to 1000]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up after this time per size [default: a minute and four durations]'
            cand --seed 'Seed of the data'
            cand --rounds 'Interleaved pairs of a baseline'
            cand --format 'Columns'
            cand --report 'Write a page with plots, everything in one file'
            cand --direction 'Direction of the data, as this side sees it'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Measure the machine''s limits in the same run and the same way of waiting, and print ours as a ratio: a bare TCP loop, the same with this window, both processes copying at once, memcpy (bw to the peer, and lat)'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print JSON lines as results come (schema linkspan.perf.stream/1)'
            cand --bidir 'Both ways at once, the same as --direction both'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;lat'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand --iters 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB of them, 2 to 1000]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up after this time per size [default: a minute and four durations]'
            cand --seed 'Seed of the data'
            cand --rounds 'Interleaved pairs of a baseline'
            cand --format 'Columns'
            cand --report 'Write a page with plots, everything in one file'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Measure the machine''s limits in the same run and the same way of waiting, and print ours as a ratio: a bare TCP loop, the same with this window, both processes copying at once, memcpy (bw to the peer, and lat)'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print JSON lines as results come (schema linkspan.perf.stream/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;jitter'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand --iters 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB of them, 2 to 1000]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up after this time per size [default: a minute and four durations]'
            cand --seed 'Seed of the data'
            cand --rounds 'Interleaved pairs of a baseline'
            cand --format 'Columns'
            cand --report 'Write a page with plots, everything in one file'
            cand --interval 'One round trip per this time'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Measure the machine''s limits in the same run and the same way of waiting, and print ours as a ratio: a bare TCP loop, the same with this window, both processes copying at once, memcpy (bw to the peer, and lat)'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print JSON lines as results come (schema linkspan.perf.stream/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;load'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand --iters 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB of them, 2 to 1000]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up after this time per size [default: a minute and four durations]'
            cand --seed 'Seed of the data'
            cand --rounds 'Interleaved pairs of a baseline'
            cand --format 'Columns'
            cand --report 'Write a page with plots, everything in one file'
            cand --direction 'Direction of the data, as this side sees it'
            cand --load-size 'Size of the bulk messages'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Measure the machine''s limits in the same run and the same way of waiting, and print ours as a ratio: a bare TCP loop, the same with this window, both processes copying at once, memcpy (bw to the peer, and lat)'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print JSON lines as results come (schema linkspan.perf.stream/1)'
            cand --bidir 'Both ways at once, the same as --direction both'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;multi'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand --iters 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB of them, 2 to 1000]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up after this time per size [default: a minute and four durations]'
            cand --seed 'Seed of the data'
            cand --rounds 'Interleaved pairs of a baseline'
            cand --format 'Columns'
            cand --report 'Write a page with plots, everything in one file'
            cand --direction 'Direction of the data, as this side sees it'
            cand -P 'Connections at once'
            cand --streams 'Connections at once'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Measure the machine''s limits in the same run and the same way of waiting, and print ours as a ratio: a bare TCP loop, the same with this window, both processes copying at once, memcpy (bw to the peer, and lat)'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print JSON lines as results come (schema linkspan.perf.stream/1)'
            cand --bidir 'Both ways at once, the same as --direction both'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;all'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand --iters 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB of them, 2 to 1000]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up after this time per size [default: a minute and four durations]'
            cand --seed 'Seed of the data'
            cand --rounds 'Interleaved pairs of a baseline'
            cand --format 'Columns'
            cand --report 'Write a page with plots, everything in one file'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Measure the machine''s limits in the same run and the same way of waiting, and print ours as a ratio: a bare TCP loop, the same with this window, both processes copying at once, memcpy (bw to the peer, and lat)'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print JSON lines as results come (schema linkspan.perf.stream/1)'
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
            cand --rsh 'What starts a command on a host, in place of ssh'
            cand --lspan 'lspan on the hosts'
            cand --port 'TCP port of the servers'
            cand --dir 'Folder that all ranks see, where they find each other [default: the working directory]'
            cand --timeout 'How long rank 0 waits for the others to come, and for a measurement beyond its length'
            cand -d 'Length of each measurement'
            cand --duration 'Length of each measurement'
            cand --report 'Write a page with a heat map, everything in one file'
            cand --open 'Have the servers let every host in that reaches them, for as long as they run; else paired peers and holders of the cluster key'
            cand --json 'Print JSON (schema linkspan.matrix/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;connect'= {
            cand -s 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand --size 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4'
            cand -n 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand --iters 'Messages (round trips, connections) of the timed part, in place of a duration'
            cand -d 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --duration 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]'
            cand --warmup 'Messages before the timed part [default: 32 MiB of them, 2 to 1000]'
            cand -w 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --window 'Messages in flight [default: 32 up to 4K, else 8]'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --mem 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why'
            cand --wait 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up after this time per size [default: a minute and four durations]'
            cand --seed 'Seed of the data'
            cand --rounds 'Interleaved pairs of a baseline'
            cand --format 'Columns'
            cand --report 'Write a page with plots, everything in one file'
            cand --no-verify 'Do not check the data'
            cand --baseline 'Measure the machine''s limits in the same run and the same way of waiting, and print ours as a ratio: a bare TCP loop, the same with this window, both processes copying at once, memcpy (bw to the peer, and lat)'
            cand --histogram 'Print a histogram below each latency row'
            cand --json 'Print one JSON document (schema linkspan.perf/1)'
            cand --json-stream 'Print JSON lines as results come (schema linkspan.perf.stream/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;write'= {
            cand -s 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4'
            cand --size 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4'
            cand -n 'Iterations of each size, in place of a duration'
            cand --iters 'Iterations of each size, in place of a duration'
            cand -d 'Least time of each size; iterations grow until one run takes as long'
            cand --duration 'Least time of each size; iterations grow until one run takes as long'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up when one operation takes as long'
            cand --no-verify 'Do not check the data'
            cand --json 'Print JSON in the layout of google-benchmark'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;perf;read'= {
            cand -s 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4'
            cand --size 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4'
            cand -n 'Iterations of each size, in place of a duration'
            cand --iters 'Iterations of each size, in place of a duration'
            cand -d 'Least time of each size; iterations grow until one run takes as long'
            cand --duration 'Least time of each size; iterations grow until one run takes as long'
            cand --path 'Path to take [default: LINKSPAN_PATH, else auto]'
            cand --device 'Device number, as `lspan status` lists them'
            cand --timeout 'Give up when one operation takes as long'
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
            cand load 'Latency while bulk data moves, beside latency while it does not'
            cand multi 'Several streams at once'
            cand all 'bw, lat, jitter, load and multi, one after another'
            cand compare 'Every way that there is to a peer, one after another, in one table'
            cand matrix 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
            cand connect 'Connections only: set up and closed one after another'
            cand write 'One-sided writes into the peer''s memory, as the table of google-benchmark'
            cand read 'One-sided reads from the peer''s memory, as the table of google-benchmark'
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
            cand --watch 'Show it again every so often, as in 500ms or 2s, with rates'
            cand --json 'Print JSON (schema linkspan.stats/1), with --watch one line each time'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;top'= {
            cand --every 'Time from one look to the next, as in 500ms or 2s'
            cand --ssh 'Look at these hosts in place of this one, over ssh'
            cand --rsh 'What runs a command on another host'
            cand --lspan 'The program on the other hosts'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;events'= {
            cand --root 'Without the service, on the machine whose sys and proc are here'
            cand --follow 'Go on with what happens from now on, until Ctrl-C'
            cand --all 'Jobs of all users'
            cand --json 'Print JSON, a line for each event (schema linkspan.event/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;metrics'= {
            cand --listen 'Serve them over HTTP at /metrics; ADDR is a PORT of loopback or IP:PORT'
            cand --textfile 'Write them to a file, as node_exporter''s textfile collector reads (NAME.prom), in place of what was there'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;files'= {
            cand -h 'Print help'
            cand --help 'Print help'
            cand serve 'Serve directories and services until Ctrl-C, to paired peers or to those with the cluster key'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;files;serve'= {
            cand --allow 'A service that peers may be joined to (lspan pipe, lspan forward): ssh, rsync, sftp, sftp:ro, tcp:PORT; ssh=PORT or rsync=FILE where its port or its rsyncd.conf is another; repeat it for more'
            cand --bind 'Address to listen on; repeat it for more [default: loopback and every usable interface]'
            cand --port 'TCP port to listen on'
            cand --device 'Device number, as `lspan status` lists them'
            cand --as-root 'Serve as root: peers then read, and where :rw is given write, whatever is below the directories'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;files;help'= {
            cand serve 'Serve directories and services until Ctrl-C, to paired peers or to those with the cluster key'
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
            cand --max-delete 'Most entries to delete [default: 1000, or a quarter of all where that is less, but 10 always]'
            cand --exclude 'Leave names alone that a rule of gitignore(5) matches, from the place of the transfer on; repeat it for more'
            cand --exclude-from 'The same with the lines of a file'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --delete 'In directories that are sent, move to the trash of the receiver what the source has not, and what is replaced'
            cand --dry-run 'Say what would be sent, and change nothing'
            cand --no-fsync 'Do not wait until everything is on the disk: a loss of power may lose what was reported as done'
            cand --xattrs 'With extended attributes of users (user.*)'
            cand --json 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;get'= {
            cand --max-delete 'Most entries to delete [default: 1000, or a quarter of all where that is less, but 10 always]'
            cand --exclude 'Leave names alone that a rule of gitignore(5) matches, from the place of the transfer on; repeat it for more'
            cand --exclude-from 'The same with the lines of a file'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --delete 'In directories that are sent, move to the trash of the receiver what the source has not, and what is replaced'
            cand --dry-run 'Say what would be sent, and change nothing'
            cand --no-fsync 'Do not wait until everything is on the disk: a loss of power may lose what was reported as done'
            cand --xattrs 'With extended attributes of users (user.*)'
            cand --json 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;mirror'= {
            cand --max-delete 'Most entries to delete in one run [default: 1000, or a quarter of all where that is less, but 10 always]'
            cand --exclude 'Leave names alone that a rule of gitignore(5) matches, from the place of the transfer on; repeat it for more'
            cand --exclude-from 'The same with the lines of a file'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --init 'The first run: mark both as belonging together'
            cand --watch 'Go on until Ctrl-C: what changes is mirrored when it has been quiet for a second'
            cand --dry-run 'Say what would be sent, and change nothing'
            cand --no-fsync 'Do not wait until everything is on the disk: a loss of power may lose what was reported as done'
            cand --xattrs 'With extended attributes of users (user.*)'
            cand --json 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;trash'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
            cand list 'Print what is in it: RUN/PATH, one line each'
            cand restore 'Take files and directories back to where they were; nothing is replaced'
            cand empty 'Remove all of it, for good'
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
            cand --older 'Only what has been there for so many days'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'lspan;trash;help'= {
            cand list 'Print what is in it: RUN/PATH, one line each'
            cand restore 'Take files and directories back to where they were; nothing is replaced'
            cand empty 'Remove all of it, for good'
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
            cand -r 'Directories with all that is below them'
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
            cand --timeout 'Longest time until a read or a write is answered, with EIO if need be, seconds; names and attributes have 5 s, or this where it is less'
            cand --port 'Port of the peer''s `lspan files serve`'
            cand --rw 'It can be written, where the share can: a write returns when the peer has it, an fsync when the peer''s disk has it'
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
            cand show 'Print this user''s public key, as `lspan key add` reads it on another host'
            cand list 'List the peers that are trusted'
            cand add 'Trust the peer whose public key standard input has, as `lspan key show` printed it there'
            cand forget 'Trust a peer no more'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;key;new'= {
            cand --replace 'Also where there is one; peers that trust the old one do not know the new one'
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
            cand show 'Print this user''s public key, as `lspan key add` reads it on another host'
            cand list 'List the peers that are trusted'
            cand add 'Trust the peer whose public key standard input has, as `lspan key show` printed it there'
            cand forget 'Trust a peer no more'
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
            cand up 'Set a network card up for device-memory TCP and give processes access to its queues, until this ends'
            cand down 'Undo what an `lspan devmem up` that was killed has left changed on a network card'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;devmem;probe'= {
            cand --json 'Print JSON'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;devmem;up'= {
            cand --queues 'Receive queues to keep for GPU memory: the last ones'
            cand --each 'Queues for each process, which shares them with no other'
            cand --allow 'Users whose processes may use them beside root, by number'
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
            cand up 'Set a network card up for device-memory TCP and give processes access to its queues, until this ends'
            cand down 'Undo what an `lspan devmem up` that was killed has left changed on a network card'
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
            cand up 'Set every cable up: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; root or whom polkit allows, on both hosts'
            cand allow 'Allow a host to use the driver linkspan.ko'
            cand mode 'Set what the driver linkspan.ko uses the cable to a host for; the same on both hosts, as root'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'lspan;link;up'= {
            cand --streams 'Streams to each host: a connection takes one'
            cand --first-hop 'First of the HopIDs, the numbers of streams on a cable, one for each stream; the same on both hosts'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;link;allow'= {
            cand --deny 'Withdraw the permission, for good'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;link;mode'= {
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'lspan;link;help'= {
            cand up 'Set every cable up: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; root or whom polkit allows, on both hosts'
            cand allow 'Allow a host to use the driver linkspan.ko'
            cand mode 'Set what the driver linkspan.ko uses the cable to a host for; the same on both hosts, as root'
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
            cand --strict 'Allow no downgrade, a path slower than it could be (LINKSPAN_STRICT=1), and end with 3 in place of 0 where one was counted all the same'
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
            cand mesh 'Show the mesh of hosts joined by direct cables: who is cabled to whom, how each pair reaches each other, what is wrong and the command that corrects it'
            cand doctor 'Say what is wrong with this machine and its cables, what it costs and the command that mends it'
            cand wait 'Wait until a peer is there: a cable has a host at its other end, or a host answers'
            cand perf 'Measure a path'
            cand selftest 'Test every part that can be tested here: one line each of pass, fail or skip'
            cand bugreport 'Put what is known of this machine and linkspan into one archive for a report, without secrets'
            cand stats 'Show what running processes have moved over linkspan'
            cand top 'Watch what running processes move over linkspan, on this host or on several'
            cand events 'Show what happened to cables and jobs: plugged, unplugged, other speed, paths lost, back and slower than they could be'
            cand metrics 'Print the statistics as Prometheus reads them, or serve them over HTTP'
            cand files 'Serve directories and services of this host to peers'
            cand ls 'List a peer''s shares, or what is in one'
            cand send 'Send files and trees to a peer''s share; an interrupted transfer goes on where it was'
            cand get 'Get files and trees from a peer''s share; an interrupted transfer goes on where it was'
            cand mirror 'Keep a directory like another one, here or at a peer; what is deleted or replaced goes to the trash'
            cand trash 'Show, take back or remove what was deleted or replaced'
            cand rm 'Remove entries of a peer''s share, for good'
            cand mv 'Give an entry of a peer''s share another name; nothing is replaced'
            cand du 'Count files and bytes below a directory of a peer''s share'
            cand verify 'Compare local files with a peer''s, both read back from the disk'
            cand mount 'Mount a peer''s share at a directory, read-only or with --rw to be written'
            cand pipe 'Join standard input and output to a service of a peer'
            cand forward 'Take connections to a port of this host to a service of a peer, until Ctrl-C'
            cand pair 'Pair with a user of another host, so that each trusts the other from then on'
            cand key 'This user''s key, and the peers that are trusted'
            cand devmem 'Device-memory TCP: payload from the network card straight into GPU memory'
            cand link 'Thunderbolt and USB4 cables: allow hosts, set streams up, choose between programs and network'
            cand run 'Run a command with what NCCL and RCCL need to use linkspan, and say which paths it used'
            cand env 'Show every LINKSPAN_ environment name, its value here and what it does; or what NCCL and RCCL need'
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
            cand load 'Latency while bulk data moves, beside latency while it does not'
            cand multi 'Several streams at once'
            cand all 'bw, lat, jitter, load and multi, one after another'
            cand compare 'Every way that there is to a peer, one after another, in one table'
            cand matrix 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named'
            cand connect 'Connections only: set up and closed one after another'
            cand write 'One-sided writes into the peer''s memory, as the table of google-benchmark'
            cand read 'One-sided reads from the peer''s memory, as the table of google-benchmark'
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
            cand serve 'Serve directories and services until Ctrl-C, to paired peers or to those with the cluster key'
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
            cand list 'Print what is in it: RUN/PATH, one line each'
            cand restore 'Take files and directories back to where they were; nothing is replaced'
            cand empty 'Remove all of it, for good'
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
            cand show 'Print this user''s public key, as `lspan key add` reads it on another host'
            cand list 'List the peers that are trusted'
            cand add 'Trust the peer whose public key standard input has, as `lspan key show` printed it there'
            cand forget 'Trust a peer no more'
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
            cand up 'Set a network card up for device-memory TCP and give processes access to its queues, until this ends'
            cand down 'Undo what an `lspan devmem up` that was killed has left changed on a network card'
        }
        &'lspan;help;devmem;probe'= {
        }
        &'lspan;help;devmem;up'= {
        }
        &'lspan;help;devmem;down'= {
        }
        &'lspan;help;link'= {
            cand up 'Set every cable up: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; root or whom polkit allows, on both hosts'
            cand allow 'Allow a host to use the driver linkspan.ko'
            cand mode 'Set what the driver linkspan.ko uses the cable to a host for; the same on both hosts, as root'
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
