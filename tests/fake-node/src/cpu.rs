//! `/proc/stat` and its neighbours: what is counted for CPUs and for the whole machine.

use std::fmt::Write as _;

use crate::Tree;

pub(crate) fn write(tree: &Tree) {
    let cpus: Vec<u32> = tree.shape.nodes.iter().flat_map(|node| node.cpus.clone()).collect();
    let times = "1000 10 500 90000 40 0 20 0 0 0";
    let mut stat = format!("cpu  {times}\n");
    for cpu in &cpus {
        writeln!(stat, "cpu{cpu} {times}").expect("a string takes all");
    }
    stat.push_str(
        "intr 0\nctxt 123456\nbtime 1700000000\nprocesses 4242\nprocs_running 3\n\
         procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
    );
    tree.write("proc/stat", stat);
    let mut info = String::new();
    for cpu in &cpus {
        writeln!(info, "processor\t: {cpu}\nmodel name\t: Fake\ncpu MHz\t\t: 2500.000\n")
            .expect("a string takes all");
    }
    tree.write("proc/cpuinfo", info);
    tree.write("sys/devices/system/cpu/online", super::memory::list(&cpus) + "\n");
    tree.write("proc/vmstat", VMSTAT);
    if tree.shape.psi {
        tree.pressure("cpu", 2_500_000, tree.shape.psi_since_5_13.then_some(0));
        tree.pressure("memory", 1_500_000, Some(750_000));
        tree.pressure("io", 4_000_000, Some(3_000_000));
        if tree.shape.psi_since_5_13 {
            tree.write("proc/pressure/irq", line("full", 125_000));
        }
    }
}

const VMSTAT: &str = "nr_free_pages 1000\nnr_dirty 10\npgpgin 100\npgpgout 200\npswpin 0\n\
                      pswpout 0\npgfault 1000000\npgmajfault 1000\noom_kill 0\n";

fn line(kind: &str, micros: u64) -> String {
    format!("{kind} avg10=1.50 avg60=0.75 avg300=0.25 total={micros}\n")
}

impl Tree {
    /// Sets the pressure on `cpu`, `memory` or `io`, in microseconds since the start.
    pub fn pressure(&self, resource: &str, some: u64, full: Option<u64>) {
        let full = full.map_or_else(String::new, |micros| line("full", micros));
        self.write(format!("proc/pressure/{resource}"), line("some", some) + &full);
    }

    /// A kernel without pressure stall information.
    pub fn psi_off(&self) {
        self.remove("proc/pressure");
    }
}
