//! Standard input and output of the command.

use std::io::{self, Read, Write};

use zeroize::Zeroizing;

use tidewire_server::exit::{Exit, Failure};

/// Prints a text. It ignores a closed output, because the command has done its work.
pub(crate) fn print_out(text: &str) -> Result<Exit, Failure> {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(Exit::Stopped)
}

/// Reads the password from standard input, without the line end.
pub(crate) fn read_password(command: &str) -> Result<Zeroizing<String>, Failure> {
    let mut password = Zeroizing::new(String::new());
    io::stdin()
        .read_to_string(&mut password)
        .map_err(|error| Failure::new(Exit::Configuration, format!("standard input: {error}")))?;
    let password = password.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        let line = format!("no password on standard input; run it as `tidewire {command} < FILE`");
        return Err(Failure::new(Exit::Configuration, line));
    }
    Ok(password.to_owned().into())
}
