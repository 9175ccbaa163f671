
using namespace System.Management.Automation
using namespace System.Management.Automation.Language

Register-ArgumentCompleter -Native -CommandName 'lspan' -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $commandElements = $commandAst.CommandElements
    $command = @(
        'lspan'
        for ($i = 1; $i -lt $commandElements.Count; $i++) {
            $element = $commandElements[$i]
            if ($element -isnot [StringConstantExpressionAst] -or
                $element.StringConstantType -ne [StringConstantType]::BareWord -or
                $element.Value.StartsWith('-') -or
                $element.Value -eq $wordToComplete) {
                break
        }
        $element.Value
    }) -join ';'

    $completions = @(switch ($command) {
        'lspan' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('-V', '-V ', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('--version', '--version', [CompletionResultType]::ParameterName, 'Print version')
            [CompletionResult]::new('status', 'status', [CompletionResultType]::ParameterValue, 'Show cables, interfaces, RDMA devices and GPUs, and why each path is or is not used')
            [CompletionResult]::new('mesh', 'mesh', [CompletionResultType]::ParameterValue, 'Show the mesh of hosts joined by direct cables: which hosts a cable connects, the route of each pair, what is wrong and the command that fixes it')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Find what is wrong with this machine and its cables, what it costs and the command that fixes it')
            [CompletionResult]::new('wait', 'wait', [CompletionResultType]::ParameterValue, 'Wait until a peer can be reached: a cable has a host at its other end, or a host answers')
            [CompletionResult]::new('perf', 'perf', [CompletionResultType]::ParameterValue, 'Measure a path')
            [CompletionResult]::new('selftest', 'selftest', [CompletionResultType]::ParameterValue, 'Test every part that can be tested here: one line each of pass, fail or skip')
            [CompletionResult]::new('bugreport', 'bugreport', [CompletionResultType]::ParameterValue, 'Collect information about this machine and linkspan in one archive for a bug report, without secrets')
            [CompletionResult]::new('stats', 'stats', [CompletionResultType]::ParameterValue, 'Show what running processes have moved over linkspan')
            [CompletionResult]::new('top', 'top', [CompletionResultType]::ParameterValue, 'Watch what running processes move over linkspan, on this host or on several')
            [CompletionResult]::new('events', 'events', [CompletionResultType]::ParameterValue, 'Show events of cables and jobs: plugged, unplugged, speed changed, paths lost, recovered or downgraded')
            [CompletionResult]::new('metrics', 'metrics', [CompletionResultType]::ParameterValue, 'Print the statistics in the format of Prometheus, or serve them over HTTP')
            [CompletionResult]::new('files', 'files', [CompletionResultType]::ParameterValue, 'Serve directories and services of this host to peers')
            [CompletionResult]::new('ls', 'ls', [CompletionResultType]::ParameterValue, 'List a peer''s shares, or what is in one')
            [CompletionResult]::new('send', 'send', [CompletionResultType]::ParameterValue, 'Send files and directory trees to a peer''s share; an interrupted transfer resumes where it stopped')
            [CompletionResult]::new('get', 'get', [CompletionResultType]::ParameterValue, 'Get files and directory trees from a peer''s share; an interrupted transfer resumes where it stopped')
            [CompletionResult]::new('mirror', 'mirror', [CompletionResultType]::ParameterValue, 'Make a directory equal to another one, here or at a peer; what is deleted or replaced goes to the trash')
            [CompletionResult]::new('trash', 'trash', [CompletionResultType]::ParameterValue, 'List, restore or remove what was deleted or replaced')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove files or directories of a peer''s share, not to the trash')
            [CompletionResult]::new('mv', 'mv', [CompletionResultType]::ParameterValue, 'Rename a file or directory of a peer''s share; nothing is replaced')
            [CompletionResult]::new('du', 'du', [CompletionResultType]::ParameterValue, 'Count files and bytes below a directory of a peer''s share')
            [CompletionResult]::new('verify', 'verify', [CompletionResultType]::ParameterValue, 'Compare local files with a peer''s, both read back from the disk')
            [CompletionResult]::new('mount', 'mount', [CompletionResultType]::ParameterValue, 'Mount a peer''s share at a directory, read-only, or writable with --rw')
            [CompletionResult]::new('pipe', 'pipe', [CompletionResultType]::ParameterValue, 'Connect standard input and output to a service of a peer')
            [CompletionResult]::new('forward', 'forward', [CompletionResultType]::ParameterValue, 'Forward connections from a port of this host to a service of a peer, until Ctrl-C')
            [CompletionResult]::new('pair', 'pair', [CompletionResultType]::ParameterValue, 'Pair with a user of another host, so that each trusts the other from then on')
            [CompletionResult]::new('key', 'key', [CompletionResultType]::ParameterValue, 'Manage this user''s key and the peers that are trusted')
            [CompletionResult]::new('devmem', 'devmem', [CompletionResultType]::ParameterValue, 'Device-memory TCP: payload from the network card straight into GPU memory')
            [CompletionResult]::new('link', 'link', [CompletionResultType]::ParameterValue, 'Thunderbolt and USB4 cables: allow hosts, set up streams, choose direct use or a network interface')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Run a command with the environment that makes NCCL and RCCL use linkspan, and print which paths it used')
            [CompletionResult]::new('env', 'env', [CompletionResultType]::ParameterValue, 'Show every LINKSPAN_ environment variable, its value here and what it does; or the variables that NCCL and RCCL need')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Write manual pages')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Write shell completions')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;status' {
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON (schema linkspan.status/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;mesh' {
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'How long to listen before the mesh is shown')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON (schema linkspan.mesh/1)')
            [CompletionResult]::new('--check', '--check', [CompletionResultType]::ParameterName, 'Measure every cable, also those between other hosts')
            [CompletionResult]::new('--serve', '--serve', [CompletionResultType]::ParameterName, 'Keep running: find neighbours and relay for them until Ctrl-C')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;doctor' {
            [CompletionResult]::new('--merge', '--merge', [CompletionResultType]::ParameterName, 'Check several hosts together, from the output of `lspan doctor --json` on each')
            [CompletionResult]::new('--root', '--root', [CompletionResultType]::ParameterName, 'Folder with the sys, proc, dev, etc, run and lib of another machine')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON (schema linkspan.doctor/1)')
            [CompletionResult]::new('--speed', '--speed', [CompletionResultType]::ParameterName, 'Also measure each path to PEER, which must run `lspan perf serve`, and compare with earlier results of this pair and equal rails with each other. Measures nothing while a process has connections over linkspan')
            [CompletionResult]::new('--no-probe', '--no-probe', [CompletionResultType]::ParameterName, 'Send no packets')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;wait' {
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Give up after this time, as in 30s [default: wait without limit]')
            [CompletionResult]::new('--serving', '--serving', [CompletionResultType]::ParameterName, 'Wait until `lspan perf serve` answers there')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Wait for peers and be the other side of their tests')
            [CompletionResult]::new('bw', 'bw', [CompletionResultType]::ParameterValue, 'Bandwidth and message rate')
            [CompletionResult]::new('lat', 'lat', [CompletionResultType]::ParameterValue, 'Latency: half round trips of a ping-pong')
            [CompletionResult]::new('jitter', 'jitter', [CompletionResultType]::ParameterValue, 'Variation of latency: a ping-pong at a fixed pace')
            [CompletionResult]::new('load', 'load', [CompletionResultType]::ParameterValue, 'Latency with and without bulk data moving at the same time')
            [CompletionResult]::new('multi', 'multi', [CompletionResultType]::ParameterValue, 'Several streams at once')
            [CompletionResult]::new('all', 'all', [CompletionResultType]::ParameterValue, 'bw, lat, jitter, load and multi, one after another')
            [CompletionResult]::new('compare', 'compare', [CompletionResultType]::ParameterValue, 'Every path to a peer, one after another, in one table')
            [CompletionResult]::new('matrix', 'matrix', [CompletionResultType]::ParameterValue, 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named')
            [CompletionResult]::new('connect', 'connect', [CompletionResultType]::ParameterValue, 'Connections only: set up and closed one after another')
            [CompletionResult]::new('write', 'write', [CompletionResultType]::ParameterValue, 'One-sided writes into the peer''s memory, printed like google-benchmark')
            [CompletionResult]::new('read', 'read', [CompletionResultType]::ParameterValue, 'One-sided reads from the peer''s memory, printed like google-benchmark')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;perf;serve' {
            [CompletionResult]::new('--bind', '--bind', [CompletionResultType]::ParameterName, 'Address to listen on; repeat it for more [default: loopback; with a cluster key or paired peers every usable interface]')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'TCP port to listen on')
            [CompletionResult]::new('--memory', '--memory', [CompletionResultType]::ParameterName, 'Memory for the tests of all clients together, MiB [default: 6144, or half of this host''s]')
            [CompletionResult]::new('--idle', '--idle', [CompletionResultType]::ParameterName, 'End the session of a client that is silent for this time [default: 1m]')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--mem', '--mem', [CompletionResultType]::ParameterName, 'Memory of this side''s messages: host, cuda:N or hip:N')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'As in the other tests, for the parent')
            [CompletionResult]::new('--open', '--open', [CompletionResultType]::ParameterName, 'Accept every host that can reach this one, paired or not; without --bind listens on every usable interface and on loopback. If a cluster key (LINKSPAN_PSK_FILE) is set, clients still need it')
            [CompletionResult]::new('--once', '--once', [CompletionResultType]::ParameterName, 'End after one session')
            [CompletionResult]::new('--follow', '--follow', [CompletionResultType]::ParameterName, 'End when standard input ends, as that of a command by ssh does')
            [CompletionResult]::new('--stdio', '--stdio', [CompletionResultType]::ParameterName, 'Be the other side of a parent process: the handle goes to stdout, the end of stdin ends us')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;bw' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--warmup', '--warmup', [CompletionResultType]::ParameterName, 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--window', '--window', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--mem', '--mem', [CompletionResultType]::ParameterName, 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for each size [default: 1 minute plus 4 times the duration]')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Seed of the data')
            [CompletionResult]::new('--rounds', '--rounds', [CompletionResultType]::ParameterName, 'Number of interleaved pairs (linkspan, baseline)')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Columns of the table')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'Write a page with plots, everything in one file')
            [CompletionResult]::new('--direction', '--direction', [CompletionResultType]::ParameterName, 'Direction of the data, as this side sees it')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--baseline', '--baseline', [CompletionResultType]::ParameterName, 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer')
            [CompletionResult]::new('--histogram', '--histogram', [CompletionResultType]::ParameterName, 'Print a histogram below each latency row')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one JSON document (schema linkspan.perf/1)')
            [CompletionResult]::new('--json-stream', '--json-stream', [CompletionResultType]::ParameterName, 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)')
            [CompletionResult]::new('--bidir', '--bidir', [CompletionResultType]::ParameterName, 'Both ways at once, the same as --direction both')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;lat' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--warmup', '--warmup', [CompletionResultType]::ParameterName, 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--window', '--window', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--mem', '--mem', [CompletionResultType]::ParameterName, 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for each size [default: 1 minute plus 4 times the duration]')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Seed of the data')
            [CompletionResult]::new('--rounds', '--rounds', [CompletionResultType]::ParameterName, 'Number of interleaved pairs (linkspan, baseline)')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Columns of the table')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'Write a page with plots, everything in one file')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--baseline', '--baseline', [CompletionResultType]::ParameterName, 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer')
            [CompletionResult]::new('--histogram', '--histogram', [CompletionResultType]::ParameterName, 'Print a histogram below each latency row')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one JSON document (schema linkspan.perf/1)')
            [CompletionResult]::new('--json-stream', '--json-stream', [CompletionResultType]::ParameterName, 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;jitter' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--warmup', '--warmup', [CompletionResultType]::ParameterName, 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--window', '--window', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--mem', '--mem', [CompletionResultType]::ParameterName, 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for each size [default: 1 minute plus 4 times the duration]')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Seed of the data')
            [CompletionResult]::new('--rounds', '--rounds', [CompletionResultType]::ParameterName, 'Number of interleaved pairs (linkspan, baseline)')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Columns of the table')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'Write a page with plots, everything in one file')
            [CompletionResult]::new('--interval', '--interval', [CompletionResultType]::ParameterName, 'One round trip per this time')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--baseline', '--baseline', [CompletionResultType]::ParameterName, 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer')
            [CompletionResult]::new('--histogram', '--histogram', [CompletionResultType]::ParameterName, 'Print a histogram below each latency row')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one JSON document (schema linkspan.perf/1)')
            [CompletionResult]::new('--json-stream', '--json-stream', [CompletionResultType]::ParameterName, 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;load' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--warmup', '--warmup', [CompletionResultType]::ParameterName, 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--window', '--window', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--mem', '--mem', [CompletionResultType]::ParameterName, 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for each size [default: 1 minute plus 4 times the duration]')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Seed of the data')
            [CompletionResult]::new('--rounds', '--rounds', [CompletionResultType]::ParameterName, 'Number of interleaved pairs (linkspan, baseline)')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Columns of the table')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'Write a page with plots, everything in one file')
            [CompletionResult]::new('--direction', '--direction', [CompletionResultType]::ParameterName, 'Direction of the data, as this side sees it')
            [CompletionResult]::new('--load-size', '--load-size', [CompletionResultType]::ParameterName, 'Size of the bulk messages')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--baseline', '--baseline', [CompletionResultType]::ParameterName, 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer')
            [CompletionResult]::new('--histogram', '--histogram', [CompletionResultType]::ParameterName, 'Print a histogram below each latency row')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one JSON document (schema linkspan.perf/1)')
            [CompletionResult]::new('--json-stream', '--json-stream', [CompletionResultType]::ParameterName, 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)')
            [CompletionResult]::new('--bidir', '--bidir', [CompletionResultType]::ParameterName, 'Both ways at once, the same as --direction both')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;multi' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--warmup', '--warmup', [CompletionResultType]::ParameterName, 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--window', '--window', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--mem', '--mem', [CompletionResultType]::ParameterName, 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for each size [default: 1 minute plus 4 times the duration]')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Seed of the data')
            [CompletionResult]::new('--rounds', '--rounds', [CompletionResultType]::ParameterName, 'Number of interleaved pairs (linkspan, baseline)')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Columns of the table')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'Write a page with plots, everything in one file')
            [CompletionResult]::new('--direction', '--direction', [CompletionResultType]::ParameterName, 'Direction of the data, as this side sees it')
            [CompletionResult]::new('-P', '-P ', [CompletionResultType]::ParameterName, 'Connections at once')
            [CompletionResult]::new('--streams', '--streams', [CompletionResultType]::ParameterName, 'Connections at once')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--baseline', '--baseline', [CompletionResultType]::ParameterName, 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer')
            [CompletionResult]::new('--histogram', '--histogram', [CompletionResultType]::ParameterName, 'Print a histogram below each latency row')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one JSON document (schema linkspan.perf/1)')
            [CompletionResult]::new('--json-stream', '--json-stream', [CompletionResultType]::ParameterName, 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)')
            [CompletionResult]::new('--bidir', '--bidir', [CompletionResultType]::ParameterName, 'Both ways at once, the same as --direction both')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;all' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--warmup', '--warmup', [CompletionResultType]::ParameterName, 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--window', '--window', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--mem', '--mem', [CompletionResultType]::ParameterName, 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for each size [default: 1 minute plus 4 times the duration]')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Seed of the data')
            [CompletionResult]::new('--rounds', '--rounds', [CompletionResultType]::ParameterName, 'Number of interleaved pairs (linkspan, baseline)')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Columns of the table')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'Write a page with plots, everything in one file')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--baseline', '--baseline', [CompletionResultType]::ParameterName, 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer')
            [CompletionResult]::new('--histogram', '--histogram', [CompletionResultType]::ParameterName, 'Print a histogram below each latency row')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one JSON document (schema linkspan.perf/1)')
            [CompletionResult]::new('--json-stream', '--json-stream', [CompletionResultType]::ParameterName, 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;compare' {
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of each measurement')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of each measurement')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON (schema linkspan.compare/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;perf;matrix' {
            [CompletionResult]::new('--rsh', '--rsh', [CompletionResultType]::ParameterName, 'Program that starts a command on another host')
            [CompletionResult]::new('--lspan', '--lspan', [CompletionResultType]::ParameterName, 'Path of lspan on the hosts')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'TCP port of the servers')
            [CompletionResult]::new('--dir', '--dir', [CompletionResultType]::ParameterName, 'Directory that all ranks share, to find each other [default: the working directory]')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'How long rank 0 waits for the other ranks, and how much longer than its duration a measurement may take')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of each measurement')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of each measurement')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'Write a page with a heat map, everything in one file')
            [CompletionResult]::new('--open', '--open', [CompletionResultType]::ParameterName, 'The servers accept every host that can reach them; without this, only paired peers and holders of the cluster key')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON (schema linkspan.matrix/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;connect' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Number of messages (round trips, connections) to time, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]')
            [CompletionResult]::new('--warmup', '--warmup', [CompletionResultType]::ParameterName, 'Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]')
            [CompletionResult]::new('-w', '-w', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--window', '--window', [CompletionResultType]::ParameterName, 'Messages in flight [default: 32 up to 4K, else 8]')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--mem', '--mem', [CompletionResultType]::ParameterName, 'Memory of this side''s messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says whether device memory is reached directly or copied through host memory (staged), and why')
            [CompletionResult]::new('--wait', '--wait', [CompletionResultType]::ParameterName, 'How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for each size [default: 1 minute plus 4 times the duration]')
            [CompletionResult]::new('--seed', '--seed', [CompletionResultType]::ParameterName, 'Seed of the data')
            [CompletionResult]::new('--rounds', '--rounds', [CompletionResultType]::ParameterName, 'Number of interleaved pairs (linkspan, baseline)')
            [CompletionResult]::new('--format', '--format', [CompletionResultType]::ParameterName, 'Columns of the table')
            [CompletionResult]::new('--report', '--report', [CompletionResultType]::ParameterName, 'Write a page with plots, everything in one file')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--baseline', '--baseline', [CompletionResultType]::ParameterName, 'Also measure what the machine can do without linkspan, and print linkspan''s result as a ratio: plain TCP, plain TCP with this window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer')
            [CompletionResult]::new('--histogram', '--histogram', [CompletionResultType]::ParameterName, 'Print a histogram below each latency row')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print one JSON document (schema linkspan.perf/1)')
            [CompletionResult]::new('--json-stream', '--json-stream', [CompletionResultType]::ParameterName, 'Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;write' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Iterations of each size, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Iterations of each size, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Minimum time for each size: the number of iterations grows until one run takes this long')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Minimum time for each size: the number of iterations grows until one run takes this long')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for one operation')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON in the layout of google-benchmark')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;read' {
            [CompletionResult]::new('-s', '-s', [CompletionResultType]::ParameterName, 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4')
            [CompletionResult]::new('--size', '--size', [CompletionResultType]::ParameterName, 'Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4')
            [CompletionResult]::new('-n', '-n', [CompletionResultType]::ParameterName, 'Iterations of each size, instead of --duration')
            [CompletionResult]::new('--iters', '--iters', [CompletionResultType]::ParameterName, 'Iterations of each size, instead of --duration')
            [CompletionResult]::new('-d', '-d', [CompletionResultType]::ParameterName, 'Minimum time for each size: the number of iterations grows until one run takes this long')
            [CompletionResult]::new('--duration', '--duration', [CompletionResultType]::ParameterName, 'Minimum time for each size: the number of iterations grows until one run takes this long')
            [CompletionResult]::new('--path', '--path', [CompletionResultType]::ParameterName, 'Path to take [default: LINKSPAN_PATH, else auto]')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'Time limit for one operation')
            [CompletionResult]::new('--no-verify', '--no-verify', [CompletionResultType]::ParameterName, 'Do not check the data')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON in the layout of google-benchmark')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;perf;help' {
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Wait for peers and be the other side of their tests')
            [CompletionResult]::new('bw', 'bw', [CompletionResultType]::ParameterValue, 'Bandwidth and message rate')
            [CompletionResult]::new('lat', 'lat', [CompletionResultType]::ParameterValue, 'Latency: half round trips of a ping-pong')
            [CompletionResult]::new('jitter', 'jitter', [CompletionResultType]::ParameterValue, 'Variation of latency: a ping-pong at a fixed pace')
            [CompletionResult]::new('load', 'load', [CompletionResultType]::ParameterValue, 'Latency with and without bulk data moving at the same time')
            [CompletionResult]::new('multi', 'multi', [CompletionResultType]::ParameterValue, 'Several streams at once')
            [CompletionResult]::new('all', 'all', [CompletionResultType]::ParameterValue, 'bw, lat, jitter, load and multi, one after another')
            [CompletionResult]::new('compare', 'compare', [CompletionResultType]::ParameterValue, 'Every path to a peer, one after another, in one table')
            [CompletionResult]::new('matrix', 'matrix', [CompletionResultType]::ParameterValue, 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named')
            [CompletionResult]::new('connect', 'connect', [CompletionResultType]::ParameterValue, 'Connections only: set up and closed one after another')
            [CompletionResult]::new('write', 'write', [CompletionResultType]::ParameterValue, 'One-sided writes into the peer''s memory, printed like google-benchmark')
            [CompletionResult]::new('read', 'read', [CompletionResultType]::ParameterValue, 'One-sided reads from the peer''s memory, printed like google-benchmark')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;perf;help;serve' {
            break
        }
        'lspan;perf;help;bw' {
            break
        }
        'lspan;perf;help;lat' {
            break
        }
        'lspan;perf;help;jitter' {
            break
        }
        'lspan;perf;help;load' {
            break
        }
        'lspan;perf;help;multi' {
            break
        }
        'lspan;perf;help;all' {
            break
        }
        'lspan;perf;help;compare' {
            break
        }
        'lspan;perf;help;matrix' {
            break
        }
        'lspan;perf;help;connect' {
            break
        }
        'lspan;perf;help;write' {
            break
        }
        'lspan;perf;help;read' {
            break
        }
        'lspan;perf;help;help' {
            break
        }
        'lspan;selftest' {
            [CompletionResult]::new('--plugin', '--plugin', [CompletionResultType]::ParameterName, 'Plugin file to load, in place of those in LD_LIBRARY_PATH and the usual folders')
            [CompletionResult]::new('--load', '--load', [CompletionResultType]::ParameterName, 'Be the child that loads a plugin')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;bugreport' {
            [CompletionResult]::new('-o', '-o', [CompletionResultType]::ParameterName, 'The archive, which must not exist [default: lspan-bugreport-HOST-TIME.tar here]')
            [CompletionResult]::new('--output', '--output', [CompletionResultType]::ParameterName, 'The archive, which must not exist [default: lspan-bugreport-HOST-TIME.tar here]')
            [CompletionResult]::new('--list', '--list', [CompletionResultType]::ParameterName, 'Show what would be in it, and write nothing')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;stats' {
            [CompletionResult]::new('--watch', '--watch', [CompletionResultType]::ParameterName, 'Repeat at this interval, as in 500ms or 2s, with rates')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON (schema linkspan.stats/1), with --watch one line each time')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;top' {
            [CompletionResult]::new('--every', '--every', [CompletionResultType]::ParameterName, 'Update interval, as in 500ms or 2s')
            [CompletionResult]::new('--ssh', '--ssh', [CompletionResultType]::ParameterName, 'Show these hosts instead of this one, over ssh')
            [CompletionResult]::new('--rsh', '--rsh', [CompletionResultType]::ParameterName, 'Program that runs a command on another host')
            [CompletionResult]::new('--lspan', '--lspan', [CompletionResultType]::ParameterName, 'Path of lspan on the other hosts')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;events' {
            [CompletionResult]::new('--root', '--root', [CompletionResultType]::ParameterName, 'Without the service, on the machine whose sys and proc are here')
            [CompletionResult]::new('--follow', '--follow', [CompletionResultType]::ParameterName, 'Keep printing new events, until Ctrl-C')
            [CompletionResult]::new('--all', '--all', [CompletionResultType]::ParameterName, 'Events of the jobs of all users')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, a line for each event (schema linkspan.event/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;metrics' {
            [CompletionResult]::new('--listen', '--listen', [CompletionResultType]::ParameterName, 'Serve them over HTTP at /metrics; ADDR is a PORT of loopback or IP:PORT')
            [CompletionResult]::new('--textfile', '--textfile', [CompletionResultType]::ParameterName, 'Write them to a file for node_exporter''s textfile collector (NAME.prom), replacing its content')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;files' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;files;serve' {
            [CompletionResult]::new('--allow', '--allow', [CompletionResultType]::ParameterName, 'A service that peers may connect to (lspan pipe, lspan forward): ssh, rsync, sftp, sftp:ro, tcp:PORT; ssh=PORT or rsync=FILE for another port or another rsyncd.conf; repeat it for more')
            [CompletionResult]::new('--bind', '--bind', [CompletionResultType]::ParameterName, 'Address where peers find it; repeat it for more [default: loopback and every usable interface]')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'TCP port to listen on')
            [CompletionResult]::new('--device', '--device', [CompletionResultType]::ParameterName, 'Device number, as `lspan status` lists them')
            [CompletionResult]::new('--as-root', '--as-root', [CompletionResultType]::ParameterName, 'Serve as root: peers can then read, and with :rw write, everything below the directories')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;files;help' {
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;files;help;serve' {
            break
        }
        'lspan;files;help;help' {
            break
        }
        'lspan;ls' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('-l', '-l', [CompletionResultType]::ParameterName, 'With permissions, size and time')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object in a line for each entry (schema linkspan.ls/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;send' {
            [CompletionResult]::new('--max-delete', '--max-delete', [CompletionResultType]::ParameterName, 'Maximum number of entries to delete [default: 1000 or a quarter of all, whichever is less, but at least 10]')
            [CompletionResult]::new('--exclude', '--exclude', [CompletionResultType]::ParameterName, 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more')
            [CompletionResult]::new('--exclude-from', '--exclude-from', [CompletionResultType]::ParameterName, 'Read such rules from a file')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('--delete', '--delete', [CompletionResultType]::ParameterName, 'In directories that are sent, move files that the source does not have, and files that are replaced, to the trash of the receiver')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Say what would be sent, and change nothing')
            [CompletionResult]::new('--no-fsync', '--no-fsync', [CompletionResultType]::ParameterName, 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done')
            [CompletionResult]::new('--xattrs', '--xattrs', [CompletionResultType]::ParameterName, 'Also transfer extended attributes of users (user.*)')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;get' {
            [CompletionResult]::new('--max-delete', '--max-delete', [CompletionResultType]::ParameterName, 'Maximum number of entries to delete [default: 1000 or a quarter of all, whichever is less, but at least 10]')
            [CompletionResult]::new('--exclude', '--exclude', [CompletionResultType]::ParameterName, 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more')
            [CompletionResult]::new('--exclude-from', '--exclude-from', [CompletionResultType]::ParameterName, 'Read such rules from a file')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('--delete', '--delete', [CompletionResultType]::ParameterName, 'In directories that are sent, move files that the source does not have, and files that are replaced, to the trash of the receiver')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Say what would be sent, and change nothing')
            [CompletionResult]::new('--no-fsync', '--no-fsync', [CompletionResultType]::ParameterName, 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done')
            [CompletionResult]::new('--xattrs', '--xattrs', [CompletionResultType]::ParameterName, 'Also transfer extended attributes of users (user.*)')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;mirror' {
            [CompletionResult]::new('--max-delete', '--max-delete', [CompletionResultType]::ParameterName, 'Maximum number of entries to delete in one run [default: 1000 or a quarter of all, whichever is less, but at least 10]')
            [CompletionResult]::new('--exclude', '--exclude', [CompletionResultType]::ParameterName, 'Skip names that match this rule of gitignore(5), relative to the top of the transfer; repeat it for more')
            [CompletionResult]::new('--exclude-from', '--exclude-from', [CompletionResultType]::ParameterName, 'Read such rules from a file')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('--init', '--init', [CompletionResultType]::ParameterName, 'First run: write a marker into both directories, so that later runs know that they belong together')
            [CompletionResult]::new('--watch', '--watch', [CompletionResultType]::ParameterName, 'Keep running until Ctrl-C, and mirror each change after one second without further changes')
            [CompletionResult]::new('--dry-run', '--dry-run', [CompletionResultType]::ParameterName, 'Say what would be sent, and change nothing')
            [CompletionResult]::new('--no-fsync', '--no-fsync', [CompletionResultType]::ParameterName, 'Do not wait until everything is on the disk: a power failure may lose files that were reported as done')
            [CompletionResult]::new('--xattrs', '--xattrs', [CompletionResultType]::ParameterName, 'Also transfer extended attributes of users (user.*)')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object in a line for each file and a last one for all (schema linkspan.files/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;trash' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the content of the trash: RUN/PATH, one line each')
            [CompletionResult]::new('restore', 'restore', [CompletionResultType]::ParameterValue, 'Restore files and directories to where they were; nothing is replaced')
            [CompletionResult]::new('empty', 'empty', [CompletionResultType]::ParameterValue, 'Remove the content of the trash permanently')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;trash;list' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object in a line for each (schema linkspan.trash/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;trash;restore' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;trash;empty' {
            [CompletionResult]::new('--older', '--older', [CompletionResultType]::ParameterName, 'Only what has been there for at least this many days')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;trash;help' {
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the content of the trash: RUN/PATH, one line each')
            [CompletionResult]::new('restore', 'restore', [CompletionResultType]::ParameterValue, 'Restore files and directories to where they were; nothing is replaced')
            [CompletionResult]::new('empty', 'empty', [CompletionResultType]::ParameterValue, 'Remove the content of the trash permanently')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;trash;help;list' {
            break
        }
        'lspan;trash;help;restore' {
            break
        }
        'lspan;trash;help;empty' {
            break
        }
        'lspan;trash;help;help' {
            break
        }
        'lspan;rm' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('-r', '-r', [CompletionResultType]::ParameterName, 'Also directories, with everything in them')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;mv' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;du' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON (schema linkspan.du/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;verify' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;mount' {
            [CompletionResult]::new('--timeout', '--timeout', [CompletionResultType]::ParameterName, 'After this many seconds without an answer a read or write fails with EIO; for names and attributes the limit is 5 s, or this if less')
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('--rw', '--rw', [CompletionResultType]::ParameterName, 'Mount it writable, if the share is: a write returns when the peer has the data, an fsync when the data is on the peer''s disk')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;pipe' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;forward' {
            [CompletionResult]::new('--port', '--port', [CompletionResultType]::ParameterName, 'Port of the peer''s `lspan files serve`')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;pair' {
            [CompletionResult]::new('--as', '--as', [CompletionResultType]::ParameterName, 'What the peer is called here [default: as it calls itself]')
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'What this side calls itself [default: this host''s name]')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON, one object in a line (schema linkspan.pair/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;key' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('new', 'new', [CompletionResultType]::ParameterValue, 'Make this user''s key')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print this user''s public key, for `lspan key add` on another host')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the peers that are trusted')
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Trust a peer: reads the public key that `lspan key show` printed there from standard input')
            [CompletionResult]::new('forget', 'forget', [CompletionResultType]::ParameterValue, 'Stop trusting a peer')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;key;new' {
            [CompletionResult]::new('--replace', '--replace', [CompletionResultType]::ParameterName, 'Replace an existing key; peers that trust the old key do not trust the new one')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;key;show' {
            [CompletionResult]::new('--name', '--name', [CompletionResultType]::ParameterName, 'What this side calls itself [default: this host''s name]')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;key;list' {
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON (schema linkspan.keys/1)')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;key;add' {
            [CompletionResult]::new('--as', '--as', [CompletionResultType]::ParameterName, 'What the peer is called here [default: as it calls itself]')
            [CompletionResult]::new('--host', '--host', [CompletionResultType]::ParameterName, 'An address or a host name of the peer; repeat it for more')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;key;forget' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;key;help' {
            [CompletionResult]::new('new', 'new', [CompletionResultType]::ParameterValue, 'Make this user''s key')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print this user''s public key, for `lspan key add` on another host')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the peers that are trusted')
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Trust a peer: reads the public key that `lspan key show` printed there from standard input')
            [CompletionResult]::new('forget', 'forget', [CompletionResultType]::ParameterValue, 'Stop trusting a peer')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;key;help;new' {
            break
        }
        'lspan;key;help;show' {
            break
        }
        'lspan;key;help;list' {
            break
        }
        'lspan;key;help;add' {
            break
        }
        'lspan;key;help;forget' {
            break
        }
        'lspan;key;help;help' {
            break
        }
        'lspan;devmem' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('probe', 'probe', [CompletionResultType]::ParameterValue, 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it')
            [CompletionResult]::new('up', 'up', [CompletionResultType]::ParameterValue, 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends')
            [CompletionResult]::new('down', 'down', [CompletionResultType]::ParameterValue, 'Undo the changes to a network card that a killed `lspan devmem up` left behind')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;devmem;probe' {
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;devmem;up' {
            [CompletionResult]::new('--queues', '--queues', [CompletionResultType]::ParameterName, 'Number of receive queues to reserve for GPU memory: the last ones')
            [CompletionResult]::new('--each', '--each', [CompletionResultType]::ParameterName, 'Queues for each process; no two processes share a queue')
            [CompletionResult]::new('--allow', '--allow', [CompletionResultType]::ParameterName, 'Users, by number, whose processes may use the queues, in addition to root')
            [CompletionResult]::new('--folder', '--folder', [CompletionResultType]::ParameterName, 'Folder of the socket')
            [CompletionResult]::new('--plan', '--plan', [CompletionResultType]::ParameterName, 'Show what would be done, and change nothing')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;devmem;down' {
            [CompletionResult]::new('--folder', '--folder', [CompletionResultType]::ParameterName, 'Folder of the journal')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;devmem;help' {
            [CompletionResult]::new('probe', 'probe', [CompletionResultType]::ParameterValue, 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it')
            [CompletionResult]::new('up', 'up', [CompletionResultType]::ParameterValue, 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends')
            [CompletionResult]::new('down', 'down', [CompletionResultType]::ParameterValue, 'Undo the changes to a network card that a killed `lspan devmem up` left behind')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;devmem;help;probe' {
            break
        }
        'lspan;devmem;help;up' {
            break
        }
        'lspan;devmem;help;down' {
            break
        }
        'lspan;devmem;help;help' {
            break
        }
        'lspan;link' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('up', 'up', [CompletionResultType]::ParameterValue, 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows')
            [CompletionResult]::new('allow', 'allow', [CompletionResultType]::ParameterValue, 'Allow a host to use the driver linkspan.ko')
            [CompletionResult]::new('mode', 'mode', [CompletionResultType]::ParameterValue, 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;link;up' {
            [CompletionResult]::new('--streams', '--streams', [CompletionResultType]::ParameterName, 'Streams to each host; each connection takes one')
            [CompletionResult]::new('--first-hop', '--first-hop', [CompletionResultType]::ParameterName, 'First HopID (the number of a stream on a cable); each stream takes the next one; the same on both hosts')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;link;allow' {
            [CompletionResult]::new('--deny', '--deny', [CompletionResultType]::ParameterName, 'Withdraw the permission permanently')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;link;mode' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;link;help' {
            [CompletionResult]::new('up', 'up', [CompletionResultType]::ParameterValue, 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows')
            [CompletionResult]::new('allow', 'allow', [CompletionResultType]::ParameterValue, 'Allow a host to use the driver linkspan.ko')
            [CompletionResult]::new('mode', 'mode', [CompletionResultType]::ParameterValue, 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;link;help;up' {
            break
        }
        'lspan;link;help;allow' {
            break
        }
        'lspan;link;help;mode' {
            break
        }
        'lspan;link;help;help' {
            break
        }
        'lspan;run' {
            [CompletionResult]::new('--strict', '--strict', [CompletionResultType]::ParameterName, 'Fail instead of using a path slower than possible (LINKSPAN_STRICT=1); exit with 3 instead of 0 if a downgrade was counted nevertheless')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;env' {
            [CompletionResult]::new('--for', '--for', [CompletionResultType]::ParameterName, 'The same for a container, a pod or a batch script: settings, devices, groups, limits and mounts')
            [CompletionResult]::new('--json', '--json', [CompletionResultType]::ParameterName, 'Print JSON')
            [CompletionResult]::new('--nccl', '--nccl', [CompletionResultType]::ParameterName, 'Print what NCCL and RCCL need on this machine, as lines for a shell: eval "$(lspan env --nccl)"')
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help (see more with ''--help'')')
            break
        }
        'lspan;man' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;completions' {
            [CompletionResult]::new('-h', '-h', [CompletionResultType]::ParameterName, 'Print help')
            [CompletionResult]::new('--help', '--help', [CompletionResultType]::ParameterName, 'Print help')
            break
        }
        'lspan;help' {
            [CompletionResult]::new('status', 'status', [CompletionResultType]::ParameterValue, 'Show cables, interfaces, RDMA devices and GPUs, and why each path is or is not used')
            [CompletionResult]::new('mesh', 'mesh', [CompletionResultType]::ParameterValue, 'Show the mesh of hosts joined by direct cables: which hosts a cable connects, the route of each pair, what is wrong and the command that fixes it')
            [CompletionResult]::new('doctor', 'doctor', [CompletionResultType]::ParameterValue, 'Find what is wrong with this machine and its cables, what it costs and the command that fixes it')
            [CompletionResult]::new('wait', 'wait', [CompletionResultType]::ParameterValue, 'Wait until a peer can be reached: a cable has a host at its other end, or a host answers')
            [CompletionResult]::new('perf', 'perf', [CompletionResultType]::ParameterValue, 'Measure a path')
            [CompletionResult]::new('selftest', 'selftest', [CompletionResultType]::ParameterValue, 'Test every part that can be tested here: one line each of pass, fail or skip')
            [CompletionResult]::new('bugreport', 'bugreport', [CompletionResultType]::ParameterValue, 'Collect information about this machine and linkspan in one archive for a bug report, without secrets')
            [CompletionResult]::new('stats', 'stats', [CompletionResultType]::ParameterValue, 'Show what running processes have moved over linkspan')
            [CompletionResult]::new('top', 'top', [CompletionResultType]::ParameterValue, 'Watch what running processes move over linkspan, on this host or on several')
            [CompletionResult]::new('events', 'events', [CompletionResultType]::ParameterValue, 'Show events of cables and jobs: plugged, unplugged, speed changed, paths lost, recovered or downgraded')
            [CompletionResult]::new('metrics', 'metrics', [CompletionResultType]::ParameterValue, 'Print the statistics in the format of Prometheus, or serve them over HTTP')
            [CompletionResult]::new('files', 'files', [CompletionResultType]::ParameterValue, 'Serve directories and services of this host to peers')
            [CompletionResult]::new('ls', 'ls', [CompletionResultType]::ParameterValue, 'List a peer''s shares, or what is in one')
            [CompletionResult]::new('send', 'send', [CompletionResultType]::ParameterValue, 'Send files and directory trees to a peer''s share; an interrupted transfer resumes where it stopped')
            [CompletionResult]::new('get', 'get', [CompletionResultType]::ParameterValue, 'Get files and directory trees from a peer''s share; an interrupted transfer resumes where it stopped')
            [CompletionResult]::new('mirror', 'mirror', [CompletionResultType]::ParameterValue, 'Make a directory equal to another one, here or at a peer; what is deleted or replaced goes to the trash')
            [CompletionResult]::new('trash', 'trash', [CompletionResultType]::ParameterValue, 'List, restore or remove what was deleted or replaced')
            [CompletionResult]::new('rm', 'rm', [CompletionResultType]::ParameterValue, 'Remove files or directories of a peer''s share, not to the trash')
            [CompletionResult]::new('mv', 'mv', [CompletionResultType]::ParameterValue, 'Rename a file or directory of a peer''s share; nothing is replaced')
            [CompletionResult]::new('du', 'du', [CompletionResultType]::ParameterValue, 'Count files and bytes below a directory of a peer''s share')
            [CompletionResult]::new('verify', 'verify', [CompletionResultType]::ParameterValue, 'Compare local files with a peer''s, both read back from the disk')
            [CompletionResult]::new('mount', 'mount', [CompletionResultType]::ParameterValue, 'Mount a peer''s share at a directory, read-only, or writable with --rw')
            [CompletionResult]::new('pipe', 'pipe', [CompletionResultType]::ParameterValue, 'Connect standard input and output to a service of a peer')
            [CompletionResult]::new('forward', 'forward', [CompletionResultType]::ParameterValue, 'Forward connections from a port of this host to a service of a peer, until Ctrl-C')
            [CompletionResult]::new('pair', 'pair', [CompletionResultType]::ParameterValue, 'Pair with a user of another host, so that each trusts the other from then on')
            [CompletionResult]::new('key', 'key', [CompletionResultType]::ParameterValue, 'Manage this user''s key and the peers that are trusted')
            [CompletionResult]::new('devmem', 'devmem', [CompletionResultType]::ParameterValue, 'Device-memory TCP: payload from the network card straight into GPU memory')
            [CompletionResult]::new('link', 'link', [CompletionResultType]::ParameterValue, 'Thunderbolt and USB4 cables: allow hosts, set up streams, choose direct use or a network interface')
            [CompletionResult]::new('run', 'run', [CompletionResultType]::ParameterValue, 'Run a command with the environment that makes NCCL and RCCL use linkspan, and print which paths it used')
            [CompletionResult]::new('env', 'env', [CompletionResultType]::ParameterValue, 'Show every LINKSPAN_ environment variable, its value here and what it does; or the variables that NCCL and RCCL need')
            [CompletionResult]::new('man', 'man', [CompletionResultType]::ParameterValue, 'Write manual pages')
            [CompletionResult]::new('completions', 'completions', [CompletionResultType]::ParameterValue, 'Write shell completions')
            [CompletionResult]::new('help', 'help', [CompletionResultType]::ParameterValue, 'Print this message or the help of the given subcommand(s)')
            break
        }
        'lspan;help;status' {
            break
        }
        'lspan;help;mesh' {
            break
        }
        'lspan;help;doctor' {
            break
        }
        'lspan;help;wait' {
            break
        }
        'lspan;help;perf' {
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Wait for peers and be the other side of their tests')
            [CompletionResult]::new('bw', 'bw', [CompletionResultType]::ParameterValue, 'Bandwidth and message rate')
            [CompletionResult]::new('lat', 'lat', [CompletionResultType]::ParameterValue, 'Latency: half round trips of a ping-pong')
            [CompletionResult]::new('jitter', 'jitter', [CompletionResultType]::ParameterValue, 'Variation of latency: a ping-pong at a fixed pace')
            [CompletionResult]::new('load', 'load', [CompletionResultType]::ParameterValue, 'Latency with and without bulk data moving at the same time')
            [CompletionResult]::new('multi', 'multi', [CompletionResultType]::ParameterValue, 'Several streams at once')
            [CompletionResult]::new('all', 'all', [CompletionResultType]::ParameterValue, 'bw, lat, jitter, load and multi, one after another')
            [CompletionResult]::new('compare', 'compare', [CompletionResultType]::ParameterValue, 'Every path to a peer, one after another, in one table')
            [CompletionResult]::new('matrix', 'matrix', [CompletionResultType]::ParameterValue, 'Bandwidth of each pair of several hosts or ranks, in one table; outliers are named')
            [CompletionResult]::new('connect', 'connect', [CompletionResultType]::ParameterValue, 'Connections only: set up and closed one after another')
            [CompletionResult]::new('write', 'write', [CompletionResultType]::ParameterValue, 'One-sided writes into the peer''s memory, printed like google-benchmark')
            [CompletionResult]::new('read', 'read', [CompletionResultType]::ParameterValue, 'One-sided reads from the peer''s memory, printed like google-benchmark')
            break
        }
        'lspan;help;perf;serve' {
            break
        }
        'lspan;help;perf;bw' {
            break
        }
        'lspan;help;perf;lat' {
            break
        }
        'lspan;help;perf;jitter' {
            break
        }
        'lspan;help;perf;load' {
            break
        }
        'lspan;help;perf;multi' {
            break
        }
        'lspan;help;perf;all' {
            break
        }
        'lspan;help;perf;compare' {
            break
        }
        'lspan;help;perf;matrix' {
            break
        }
        'lspan;help;perf;connect' {
            break
        }
        'lspan;help;perf;write' {
            break
        }
        'lspan;help;perf;read' {
            break
        }
        'lspan;help;selftest' {
            break
        }
        'lspan;help;bugreport' {
            break
        }
        'lspan;help;stats' {
            break
        }
        'lspan;help;top' {
            break
        }
        'lspan;help;events' {
            break
        }
        'lspan;help;metrics' {
            break
        }
        'lspan;help;files' {
            [CompletionResult]::new('serve', 'serve', [CompletionResultType]::ParameterValue, 'Serve directories and services until Ctrl-C, to paired peers or to holders of the cluster key')
            break
        }
        'lspan;help;files;serve' {
            break
        }
        'lspan;help;ls' {
            break
        }
        'lspan;help;send' {
            break
        }
        'lspan;help;get' {
            break
        }
        'lspan;help;mirror' {
            break
        }
        'lspan;help;trash' {
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the content of the trash: RUN/PATH, one line each')
            [CompletionResult]::new('restore', 'restore', [CompletionResultType]::ParameterValue, 'Restore files and directories to where they were; nothing is replaced')
            [CompletionResult]::new('empty', 'empty', [CompletionResultType]::ParameterValue, 'Remove the content of the trash permanently')
            break
        }
        'lspan;help;trash;list' {
            break
        }
        'lspan;help;trash;restore' {
            break
        }
        'lspan;help;trash;empty' {
            break
        }
        'lspan;help;rm' {
            break
        }
        'lspan;help;mv' {
            break
        }
        'lspan;help;du' {
            break
        }
        'lspan;help;verify' {
            break
        }
        'lspan;help;mount' {
            break
        }
        'lspan;help;pipe' {
            break
        }
        'lspan;help;forward' {
            break
        }
        'lspan;help;pair' {
            break
        }
        'lspan;help;key' {
            [CompletionResult]::new('new', 'new', [CompletionResultType]::ParameterValue, 'Make this user''s key')
            [CompletionResult]::new('show', 'show', [CompletionResultType]::ParameterValue, 'Print this user''s public key, for `lspan key add` on another host')
            [CompletionResult]::new('list', 'list', [CompletionResultType]::ParameterValue, 'List the peers that are trusted')
            [CompletionResult]::new('add', 'add', [CompletionResultType]::ParameterValue, 'Trust a peer: reads the public key that `lspan key show` printed there from standard input')
            [CompletionResult]::new('forget', 'forget', [CompletionResultType]::ParameterValue, 'Stop trusting a peer')
            break
        }
        'lspan;help;key;new' {
            break
        }
        'lspan;help;key;show' {
            break
        }
        'lspan;help;key;list' {
            break
        }
        'lspan;help;key;add' {
            break
        }
        'lspan;help;key;forget' {
            break
        }
        'lspan;help;devmem' {
            [CompletionResult]::new('probe', 'probe', [CompletionResultType]::ParameterValue, 'Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it')
            [CompletionResult]::new('up', 'up', [CompletionResultType]::ParameterValue, 'Set up a network card for device-memory TCP and give processes access to its queues, until this command ends')
            [CompletionResult]::new('down', 'down', [CompletionResultType]::ParameterValue, 'Undo the changes to a network card that a killed `lspan devmem up` left behind')
            break
        }
        'lspan;help;devmem;probe' {
            break
        }
        'lspan;help;devmem;up' {
            break
        }
        'lspan;help;devmem;down' {
            break
        }
        'lspan;help;link' {
            [CompletionResult]::new('up', 'up', [CompletionResultType]::ParameterValue, 'Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root or as a user that polkit allows')
            [CompletionResult]::new('allow', 'allow', [CompletionResultType]::ParameterValue, 'Allow a host to use the driver linkspan.ko')
            [CompletionResult]::new('mode', 'mode', [CompletionResultType]::ParameterValue, 'Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root')
            break
        }
        'lspan;help;link;up' {
            break
        }
        'lspan;help;link;allow' {
            break
        }
        'lspan;help;link;mode' {
            break
        }
        'lspan;help;run' {
            break
        }
        'lspan;help;env' {
            break
        }
        'lspan;help;man' {
            break
        }
        'lspan;help;completions' {
            break
        }
        'lspan;help;help' {
            break
        }
    })

    $completions.Where{ $_.CompletionText -like "$wordToComplete*" } |
        Sort-Object -Property ListItemText
}
