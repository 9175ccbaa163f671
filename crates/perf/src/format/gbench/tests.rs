use super::*;

fn run(bytes: u64, real_us: f64, cpu_us: f64, iterations: u64) -> Run {
    let name = format!("BM_RdmaTransport_Write/{bytes}/real_time");
    Run { name, iterations, real_ns: real_us * 1e3, cpu_ns: cpu_us * 1e3, bytes }
}

/// Rows as they are published, but for the last digits of the rate, which was computed from more digits of the time.
#[test]
fn rows_lie_beside_published_ones() {
    // The longest name of that run was of another test, which is not shown.
    let width = "BM_RdmaTransport_Write/268435456/real_time".len() + 2;
    let beside = [
        (
            run(8192, 27.0, 9.01, 27612),
            "BM_RdmaTransport_Write/8192/real_time              27.0 us         9.01 us        27612 bytes_per_second=289.352M/s",
        ),
        (
            run(4_194_304, 113.0, 10.1, 5961),
            "BM_RdmaTransport_Write/4194304/real_time            113 us         10.1 us         5961 bytes_per_second=34.5686G/s",
        ),
        (
            run(268_435_456, 5552.0, 142.0, 126),
            "BM_RdmaTransport_Write/268435456/real_time         5552 us          142 us          126 bytes_per_second=45.0288G/s",
        ),
    ];
    for (run, line) in beside {
        assert_eq!(run.row(width).trim_end(), line);
    }
    let head = head(width);
    let names = head.lines().nth(1).unwrap();
    assert_eq!(names, "Benchmark                                             Time             CPU   Iterations");
    assert!(head.lines().all(|line| line.len() == names.len()));
}

#[test]
fn numbers_have_the_digits_that_count() {
    assert_eq!(
        [0.1234, 9.994, 9.996, 99.94, 99.96].map(time).map(|t| t.trim().to_owned()),
        ["0.123", "9.99", "10.0", "99.9", "100"]
    );
    let shown = [0.0, 512.0, 1024.0, 1.1242 * 1073741824.0, 288.978 * 1048576.0].map(binary);
    assert_eq!(shown, ["0", "512", "1k", "1.1242G", "288.978M"]);
}

#[test]
fn dates_are_dates() {
    let known = [
        (0, "1970-01-01T00:00:00+00:00"),
        (951_827_696, "2000-02-29T12:34:56+00:00"),
        (1_735_689_599, "2024-12-31T23:59:59+00:00"),
        (1_795_262_400, "2026-11-21T12:00:00+00:00"),
        // What a peer may say of its files: no longer than any other to tell.
        (u64::MAX, "9999-12-31T23:59:59+00:00"),
    ];
    for (unix, text) in known {
        assert_eq!(date(unix), text);
    }
}

#[test]
fn json_has_the_fields_that_scripts_read() {
    let context = Context {
        date: "2026-11-21T12:00:00+00:00".into(),
        host_name: "h".into(),
        executable: "lspan".into(),
        num_cpus: 2,
        mhz_per_cpu: 0,
        caches: Vec::new(),
        load_avg: vec![0.5],
        library_build_type: "release",
        path: "shm".into(),
        downgrades: Vec::new(),
        error: None,
    };
    let text = json(&context, &[run(8192, 2.0, 1.0, 10)]).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = &value["benchmarks"][0];
    assert_eq!(value["context"]["num_cpus"], 2);
    assert_eq!(row["name"], "BM_RdmaTransport_Write/8192/real_time");
    assert_eq!((row["run_type"].as_str(), row["time_unit"].as_str()), (Some("iteration"), Some("us")));
    assert_eq!((row["real_time"].as_f64(), row["cpu_time"].as_f64()), (Some(2.0), Some(1.0)));
    assert_eq!((row["iterations"].as_u64(), row["bytes_per_second"].as_f64()), (Some(10), Some(4.096e9)));
}
