use super::*;

#[test]
fn the_login_table_is_bounded() {
    let table = LoginTable::new(3);
    for stream in 0..10 {
        table.claim(1, stream, None).unwrap();
        assert!(table.len() <= 3);
    }
    assert!(table.is_used(1, 9) && table.is_used(1, 7) && !table.is_used(1, 6));
    assert_eq!(table.claim(1, 9, None), Err(LoginError::Used { conn_id: 1, stream: 9 }));
    table.claim(2, 9, None).unwrap();
    assert_eq!(table.len(), 3);
    assert!(LoginTable::default().is_empty());
}
