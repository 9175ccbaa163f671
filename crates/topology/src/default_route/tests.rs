use super::*;

#[test]
fn default_routes_of_both_families() {
    let v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
              enP7s7\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
              enp1s0f0np0\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    assert_eq!(v4.lines().skip(1).filter_map(four).collect::<Vec<_>>(), ["enP7s7"]);
    let zero = "0".repeat(32);
    let default = format!("{zero} 00 {zero} 00 fe800000000000000000000000000001 00000064 1 0 00000003 wlan0");
    let reject = format!("{zero} 00 {zero} 00 {zero} ffffffff 1 0 00200200 lo");
    let other = format!("fe80{} 40 {zero} 00 {zero} 00000100 1 0 00000001 eth0", &zero[4..]);
    assert_eq!(six(&default).as_deref(), Some("wlan0"));
    assert_eq!((six(&reject), six(&other), six("")), (None, None, None));
}
