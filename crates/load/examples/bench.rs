//! The load generator by itself, without the server's binary around it.
fn main() -> std::process::ExitCode {
    laneway_load::command::main(std::env::args_os().skip(1))
}
