//! Columns of perftest, in Gb/s as with its `--report_gbits`.

use crate::record::Row;

pub(super) fn head(row: &Row) -> String {
    match row.latency {
        None => format!(
            " {:<10} {:<16} {:<20} {:<20} {}\n",
            "#bytes", "#iterations", "BW peak[Gb/sec]", "BW average[Gb/sec]", "MsgRate[Mpps]"
        ),
        Some(_) => format!(
            " {:<8} {:<12} {:<12} {:<12} {:<16} {:<12} {:<13} {:<22} {}\n",
            "#bytes",
            "#iterations",
            "t_min[usec]",
            "t_max[usec]",
            "t_typical[usec]",
            "t_avg[usec]",
            "t_stdev[usec]",
            "99% percentile[usec]",
            "99.9% percentile[usec]"
        ),
    }
}

pub(super) fn row(row: &Row) -> String {
    match &row.latency {
        // The peak of single samples is not measured; perftest prints 0.00 then, as in its duration mode.
        None => format!(
            " {:<10} {:<16} {:<20.2} {:<20.2} {:.6}\n",
            row.size_bytes,
            row.messages,
            0.0,
            row.bw_gbit_s,
            row.msg_per_s / 1e6
        ),
        Some(latency) => {
            let us = |ns: f64| format!("{:.2}", ns / 1000.0);
            format!(
                " {:<8} {:<12} {:<12} {:<12} {:<16} {:<12} {:<13} {:<22} {}\n",
                row.size_bytes,
                latency.count,
                us(latency.min_ns),
                us(latency.max_ns),
                us(latency.p50_ns),
                us(latency.avg_ns),
                us(latency.stddev_ns),
                us(latency.p99_ns),
                us(latency.p99_9_ns)
            )
        }
    }
}
