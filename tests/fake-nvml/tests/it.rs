//! The library as programs see it: loaded by the wrapper crate, through C.

use fake_nvml::Node;
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::InitFlags;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use std::sync::mpsc;
use std::time::Duration;

/// A test's library is never unloaded: threads may be inside.
fn load(node: &Node) -> Result<&'static Nvml, NvmlError> {
    let nvml = Nvml::builder().lib_path(node.library().as_os_str()).init()?;
    Ok(Box::leak(Box::new(nvml)))
}

#[test]
fn a_healthy_node_answers_everything() -> Result<(), NvmlError> {
    let node = Node::with_cards(8);
    let nvml = load(&node)?;
    assert_eq!(nvml.sys_driver_version()?, "580.95.05");
    assert_eq!(nvml.device_count()?, 8);
    let card = nvml.device_by_index(7)?;
    assert_eq!(card.name()?, "NVIDIA H200");
    assert_eq!(card.uuid()?, "GPU-00000007-5167-4717-8000-000000000007");
    let address = card.pci_info()?;
    assert_eq!((address.bus_id.as_str(), address.bus), ("00000000:87:00.0", 0x87));
    assert_eq!(nvml.device_by_pci_bus_id("00000000:87:00.0")?.index()?, 7);
    assert_eq!(nvml.device_by_uuid(card.uuid()?)?.index()?, 7);
    let memory = card.memory_info()?;
    assert_eq!(memory.total, memory.used + memory.free + memory.reserved);
    assert_eq!(card.utilization_rates()?.gpu, 50);
    assert_eq!(card.temperature(TemperatureSensor::Gpu)?, 55);
    assert_eq!(card.clock_info(Clock::Memory)?, 3201);
    assert_eq!(card.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile)?, 7);
    assert_eq!(card.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Aggregate)?, 1);
    assert_eq!(card.mig_mode()?.current, 0);
    assert!(card.link_wrapper_for(17).is_active()?);
    assert!(card.link_wrapper_for(18).is_active().is_err());
    Ok(())
}

#[test]
fn values_follow_the_script_and_copies_share_nothing() -> Result<(), NvmlError> {
    let (one, other) = (Node::with_cards(1), Node::with_cards(1));
    let (first, second) = (load(&one)?.device_by_index(0)?, load(&other)?.device_by_index(0)?);
    one.set("0.nvmlDeviceGetPowerUsage", 1);
    assert_eq!(first.power_usage()?, 1);
    one.set("0.nvmlDeviceGetPowerUsage", "NOT_SUPPORTED");
    assert!(matches!(first.power_usage(), Err(NvmlError::NotSupported)));
    assert_eq!(second.power_usage()?, 412_345);
    Ok(())
}

#[test]
fn each_field_has_its_own_code() -> Result<(), NvmlError> {
    let node = Node::with_cards(1);
    node.set("0.field.82", "NO_PERMISSION");
    node.unset("*.field.142");
    let card = load(&node)?.device_by_index(0)?;
    let ids = [FieldId(82), FieldId(142), FieldId(143), FieldId(252)];
    let codes: Vec<_> = card.field_values_for(&ids)?.into_iter().map(|f| f?.value).collect();
    assert!(matches!(codes[0], Err(NvmlError::NoPermission)));
    assert!(matches!(codes[1], Err(NvmlError::NotSupported)));
    assert!(codes[2].is_ok());
    // The wrapper knows that this driver numbers the field 270.
    assert!(codes[3].is_ok());
    Ok(())
}

#[test]
fn a_lost_card_leaves_the_others_alone() -> Result<(), NvmlError> {
    let node = Node::with_cards(2);
    let nvml = load(&node)?;
    let (lost, other) = (nvml.device_by_index(0)?, nvml.device_by_index(1)?);
    node.fail(0, "*", "GPU_IS_LOST");
    assert!(matches!(lost.uuid(), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_index(0), Err(NvmlError::GpuLost)));
    assert!(other.uuid().is_ok());
    node.heal(0, "*");
    assert!(lost.uuid().is_ok());
    Ok(())
}

#[test]
fn a_call_hangs_until_its_line_goes_and_others_go_on() -> Result<(), NvmlError> {
    let node = Node::with_cards(2);
    let nvml = load(&node)?;
    node.fail(1, "nvmlDeviceGetPowerUsage", "hang");
    let (said, says) = mpsc::channel();
    let hung = std::thread::spawn(move || {
        let card = nvml.device_by_index(1);
        said.send(()).expect("the test waits");
        card.and_then(|card| card.power_usage())
    });
    says.recv().expect("the thread runs");
    assert_eq!(nvml.device_by_index(0)?.power_usage()?, 412_345);
    assert!(!hung.is_finished());
    node.heal(1, "nvmlDeviceGetPowerUsage");
    assert_eq!(hung.join().expect("it ends")?, 412_345);
    Ok(())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the delay is what is tested")]
fn a_call_can_be_slow() -> Result<(), NvmlError> {
    let node = Node::with_cards(1);
    let card = load(&node)?.device_by_index(0)?;
    node.fail(0, "nvmlDeviceGetPowerUsage", "sleep 50");
    let started = std::time::Instant::now();
    assert_eq!(card.power_usage()?, 412_345);
    assert!(started.elapsed() >= Duration::from_millis(50));
    Ok(())
}

#[test]
fn initialisation_fails_as_the_script_says() {
    let node = Node::empty();
    node.fail("sys", "nvmlInit", "DRIVER_NOT_LOADED");
    assert!(matches!(load(&node), Err(NvmlError::DriverNotLoaded)));
    node.fail("sys", "nvmlInit", "LIB_RM_VERSION_MISMATCH");
    assert!(matches!(load(&node), Err(NvmlError::LibRmVersionMismatch)));
    node.fail("sys", "nvmlInit", "NO_PERMISSION");
    assert!(matches!(load(&node), Err(NvmlError::NoPermission)));
    node.heal("sys", "nvmlInit");
    let flags = InitFlags::NO_GPUS | InitFlags::NO_ATTACH;
    let nvml = Nvml::builder().lib_path(node.library().as_os_str()).flags(flags).init();
    assert_eq!(nvml.expect("no failure is left").device_count().expect("it answers"), 0);
}

#[test]
fn an_older_library_lacks_what_is_hidden() -> Result<(), NvmlError> {
    let node = Node::with_cards(1);
    node.set("0.processes", "42:1000 43:-");
    node.hide(&["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"]);
    let card = load(&node)?.device_by_index(0)?;
    assert!(matches!(card.memory_info(), Err(NvmlError::FailedToLoadSymbol(_))));
    assert!(matches!(card.running_compute_processes(), Err(NvmlError::FailedToLoadSymbol(_))));
    assert_eq!(card.running_compute_processes_v2()?.len(), 2);
    Ok(())
}

#[test]
fn events_are_delivered_once_and_only_after_registration() -> Result<(), NvmlError> {
    let node = Node::with_cards(2);
    let nvml = load(&node)?;
    node.xid(0, 31);
    let register = |card| {
        let card = nvml.device_by_index(card)?;
        card.register_events(EventTypes::CRITICAL_XID_ERROR, nvml.create_event_set()?)
            .map_err(|error| error.error)
    };
    let (first, second) = (register(0)?, register(1)?);
    assert!(matches!(first.wait(0), Err(NvmlError::Timeout)));
    node.xid(0, 79);
    let event = first.wait(5000)?;
    assert_eq!(event.event_data, Some(XidError::Value(79)));
    node.fail(0, "*", "GPU_IS_LOST");
    assert!(matches!(first.wait(5000), Err(NvmlError::GpuLost)));
    assert!(matches!(second.wait(0), Err(NvmlError::Timeout)));
    Ok(())
}

#[test]
fn instances_have_values_of_their_own() -> Result<(), NvmlError> {
    let node = Node::with_cards(1);
    node.set("0.nvmlDeviceGetMigMode", "1 1");
    node.set("0.nvmlDeviceGetMaxMigDeviceCount", 7);
    node.set("0/2.nvmlDeviceGetUUID", "MIG-2");
    node.set("0/2.nvmlDeviceGetMemoryInfo", "20000 5000 100");
    let card = load(&node)?.device_by_index(0)?;
    assert!(matches!(card.mig_device_by_index(0), Err(NvmlError::NotFound)));
    let instance = card.mig_device_by_index(2)?;
    assert_eq!(instance.uuid()?, "MIG-2");
    assert_eq!(instance.memory_info()?.free, 14_900);
    assert!(matches!(instance.power_usage(), Err(NvmlError::NotSupported)));
    assert_eq!(instance.mig_parent_device()?.index()?, 0);
    Ok(())
}
