use clap::CommandFactory;

use super::*;

#[test]
fn definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_and_option_has_a_help_text() {
    fn walk(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for arg in command.get_arguments() {
            assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
        }
        command.get_subcommands().for_each(walk);
    }
    walk(&Cli::command());
}

#[test]
fn the_codes_in_the_table_are_the_codes_of_the_program() {
    use exit::Exit;
    let all = [
        Exit::Ok,
        Exit::Failed,
        Exit::Usage,
        Exit::Degraded,
        Exit::NoPeer,
        Exit::Permission,
        Exit::WrongData,
        Exit::Timeout,
        Exit::NotRun,
        Exit::NotStarted,
        Exit::NotFound,
        Exit::Interrupted,
    ];
    let table: Vec<u8> =
        exit::TABLE.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect();
    assert_eq!(table, all.map(|exit| exit as u8));
}
