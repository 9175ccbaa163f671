//! Several tensors written in one call, with one notification for all of them, as futures.

use std::time::Duration;

use linkspan::{Access, Memory, Notify, Transport};

fn main() -> Result<(), linkspan::Error> {
    let limit = Some(Duration::from_secs(30));
    let (source, target) = (Transport::new()?, Transport::new()?);
    source.connect_blocking(&target.bind()?, Duration::from_secs(20))?;

    // Tensors of different sizes in one inbox, one behind the other.
    let sizes = [4096usize, 1 << 20, 100, 3 << 20];
    let inbox = Memory::host(sizes.iter().sum());
    let remote = target.expose(&inbox.view(), Access::Write)?.remote();
    let tensors: Vec<Memory> = (1u8..).zip(sizes).map(|(n, size)| Memory::copy_of(&vec![n; size])).collect();
    let mut at = 0;
    let mut parts = Vec::new();
    for tensor in &tensors {
        parts.push((tensor.view(), remote.slice(at, tensor.len() as u64)?));
        at += tensor.len() as u64;
    }
    let batch = source.write_batch(&parts, Some(Notify::value(at)), limit);
    let told = target.wait_for_write_blocking(limit)?;
    let bytes = batch.wait()?;
    let got = inbox.to_vec();
    let mut rest = &got[..];
    for tensor in &tensors {
        let (part, behind) = rest.split_at(tensor.len());
        assert!(part == tensor.to_vec());
        rest = behind;
    }
    println!("{} tensors, {bytes} bytes in one call, notification {told}", tensors.len());
    Ok(())
}
