use super::*;
use crate::Nic;

#[test]
fn devices_or_a_reason() {
    match devices() {
        Ok(names) if names.is_empty() => {
            let Err(error) = HwNic::open("mlx5_0") else { panic!("a device that is not listed opens") };
            assert!(error.to_string().starts_with("LS1203"), "{error}");
            eprintln!("devices: cannot be tested here: this machine has no RDMA device");
        }
        Ok(names) => {
            for name in names {
                match HwNic::open(&name) {
                    Ok(nic) => {
                        let limits = nic.limits().expect("limits");
                        assert!(limits.qp > 0 && limits.ports > 0 && nic.event().expect("events").is_none());
                        for port in 1..=limits.ports {
                            nic.port(port).expect("a port");
                            nic.gids(port).expect("its addresses");
                        }
                    }
                    Err(error) => eprintln!("{name}: cannot be tested here: {error}"),
                }
            }
        }
        Err(error) => {
            assert!(error.to_string().starts_with("LS120"), "{error}");
            eprintln!("devices: cannot be tested here: {error}");
        }
    }
}
