//! A name for a model: everything in its files.

use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use xxhash_rust::xxh3::xxh3_128;

/// Bytes that a thread reads at once.
const CHUNK: u64 = 4 << 20;

/// A file, as far as it counts.
struct Listed {
    file: File,
    bytes: u64,
    chunks: usize,
}

/// SHA-256 over names, lengths and contents of `files`, in this order; contents are first reduced
/// to 128 bits for each 4 MiB. Every byte counts, so it changes with any weight. Takes as long as
/// `threads` threads need to read the files.
///
/// # Errors
/// A file that cannot be read, or that became shorter meanwhile.
pub fn fingerprint(files: &[(&str, &Path)], threads: usize) -> io::Result<[u8; 32]> {
    let mut listed = Vec::new();
    for (_, path) in files {
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let chunks = usize::try_from(bytes.div_ceil(CHUNK)).map_err(io::Error::other)?;
        listed.push(Listed { file, bytes, chunks });
    }
    let places = listed.iter().enumerate();
    let chunks: Vec<(usize, usize)> =
        places.flat_map(|(at, file)| (0..file.chunks).map(move |chunk| (at, chunk))).collect();
    let sums = Mutex::new(vec![0; chunks.len()]);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        let mut buffer = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((file, chunk)) = chunks.get(index) else { return };
            match sum(&listed[*file], *chunk, &mut buffer) {
                Ok(sum) => sums.lock().expect("nobody panics")[index] = sum,
                Err(error) => {
                    failed.lock().expect("nobody panics").get_or_insert(error);
                    next.store(chunks.len(), Ordering::Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
    if let Some(error) = failed.into_inner().expect("nobody panicked") {
        return Err(error);
    }
    let mut hash = Sha256::new().chain_update(b"sightline model\0");
    let sums = sums.into_inner().expect("nobody panicked");
    let mut sums = sums.iter();
    for ((name, _), file) in files.iter().zip(&listed) {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(file.bytes.to_le_bytes());
        for sum in sums.by_ref().take(file.chunks) {
            hash.update(u128::to_le_bytes(*sum));
        }
    }
    Ok(hash.finalize().into())
}

fn sum(listed: &Listed, chunk: usize, buffer: &mut Vec<u8>) -> io::Result<u128> {
    let start = chunk as u64 * CHUNK;
    let bytes = usize::try_from(CHUNK.min(listed.bytes - start)).expect("a few MiB");
    buffer.resize(bytes, 0);
    listed.file.read_exact_at(buffer, start)?;
    Ok(xxh3_128(buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts_and_the_number_of_threads_does_not() {
        let folder = std::env::temp_dir().join(format!("sightline-print-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let (one, two) = (folder.join("one"), folder.join("two"));
        let content: Vec<u8> = (0..(2 * CHUNK + 17)).map(|at| (at * 31 / 7) as u8).collect();
        std::fs::write(&one, &content).expect("writable");
        std::fs::write(&two, b"").expect("writable");
        let files = [("one", one.as_path()), ("two", two.as_path())];
        let print = |threads| fingerprint(&files, threads).expect("readable");
        let before = print(1);
        assert_eq!(print(3), before);
        let mut prints = vec![before, fingerprint(&files[..1], 1).expect("readable")];
        let swapped = [("two", one.as_path()), ("one", two.as_path())];
        prints.push(fingerprint(&swapped, 1).expect("readable"));
        for at in [0, CHUNK - 1, CHUNK, 2 * CHUNK + 16] {
            let mut other = content.clone();
            other[at as usize] ^= 1;
            std::fs::write(&one, &other).expect("writable");
            prints.push(print(2));
        }
        std::fs::write(&one, &content[..content.len() - 1]).expect("writable");
        prints.push(print(2));
        let count = prints.len();
        prints.sort_unstable();
        prints.dedup();
        assert_eq!(prints.len(), count);
        std::fs::write(&one, &content).expect("writable");
        assert_eq!(print(2), before);
        std::fs::remove_dir_all(&folder).expect("it is ours");
        assert!(fingerprint(&files, 2).is_err());
    }
}
