//! Writes the list of files that the program embeds: boards, rules and the console's files.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?);
    let mut out = String::new();
    for (name, folder, ending) in [
        ("BOARDS", root.join("../dashboards/generated"), ".json"),
        ("RULES", root.join("../prometheus/rules"), ".yml"),
        ("WEB", root.join("web"), ""),
    ] {
        let mut files = Vec::new();
        list(&folder, &folder, ending, &mut files)?;
        files.sort();
        writeln!(out, "pub(crate) static {name}: &[(&str, &[u8])] = &[")
            .map_err(io::Error::other)?;
        for (path, full) in files {
            writeln!(out, "    ({path:?}, include_bytes!({full:?})),").map_err(io::Error::other)?;
        }
        out.push_str("];\n");
    }
    let target = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(target.join("embedded.rs"), out)
}

/// Collects (path under `base`, full path) of the files below `folder`; a missing folder is empty.
fn list(
    base: &Path,
    folder: &Path,
    ending: &str,
    files: &mut Vec<(String, PathBuf)>,
) -> io::Result<()> {
    // Cargo looks at a folder's own time only, so that each folder is named.
    let mut stdout = io::stdout();
    io::Write::write_all(
        &mut stdout,
        format!("cargo:rerun-if-changed={}\n", folder.display()).as_bytes(),
    )?;
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            // Rule tests and the like are not embedded; the console's folders are.
            if ending.is_empty() {
                list(base, &path, ending, files)?;
            }
        } else if name.ends_with(ending) && !name.starts_with('.') {
            let relative = path.strip_prefix(base).unwrap_or(&path);
            files.push((relative.to_string_lossy().into_owned(), path.canonicalize()?));
        }
    }
    Ok(())
}
