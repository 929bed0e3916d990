//! Copies the inputs of a corpus that show nothing wrong. Built with a planted fault, it takes out what would find
//! the fault at once, so that the fuzzer has to. Usage: `keep_passing FROM TO`.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use tidewire_fuzz::harness::finding;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [from, to] = &arguments[..] else {
        return Err("usage: keep_passing FROM TO".into());
    };
    fs::create_dir_all(to)?;
    std::panic::set_hook(Box::new(|_| {}));
    let (mut kept, mut dropped) = (0, 0);
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let input = fs::read(entry.path())?;
        if finding(&input).is_some() {
            dropped += 1;
            continue;
        }
        fs::write(Path::new(to).join(entry.file_name()), input)?;
        kept += 1;
    }
    println!("{kept} inputs kept, {dropped} left out");
    Ok(())
}
