"""Reads a scripted node through NVIDIA's binding and compares it with the script."""

import os
import re
import sys

import pynvml as nvml

folder = sys.argv[1]
checks = 0


def script(text):
    fresh = os.path.join(folder, "new")
    with open(fresh, "w") as file:
        file.write(text)
    os.replace(fresh, os.path.join(folder, "nvml.script"))


def same(what, found, expected):
    global checks
    checks += 1
    if found != expected:
        sys.exit(f"{what}: {found!r} where the script says {expected!r}")


def refused(what, call, error):
    global checks
    checks += 1
    try:
        sys.exit(f"{what}: {call()!r} where the script says {error.__name__}")
    except error:
        pass


NODE = """
cards = 2
driver = 580.95.05
library = 13.580.95.05
cuda = 13010
*.nvmlDeviceGetName = NVIDIA H200
0.nvmlDeviceGetUUID = GPU-a
1.nvmlDeviceGetUUID = GPU-b
1.nvmlDeviceGetIndex = 1
1.nvmlDeviceGetMinorNumber = 5
1.nvmlDeviceGetSerial = 1650000000000
1.nvmlDeviceGetVbiosVersion = 96.00.A0.00.01
1.nvmlDeviceGetPciInfo = 00000000:A1:00.0
1.nvmlDeviceGetUtilizationRates = 87 41
1.nvmlDeviceGetMemoryInfo = 1000 600 100
1.nvmlDeviceGetBAR1MemoryInfo = 256 6
1.nvmlDeviceGetTemperature.0 = 61
1.nvmlDeviceGetTemperatureThreshold.1 = 92
1.nvmlDeviceGetPowerUsage = 412345
1.nvmlDeviceGetEnforcedPowerLimit = 700000
1.nvmlDeviceGetTotalEnergyConsumption = 9000000000
1.nvmlDeviceGetClockInfo.1 = 1980
1.nvmlDeviceGetMaxClockInfo.2 = 3201
1.nvmlDeviceGetCurrentClocksThrottleReasons = 68
1.nvmlDeviceGetPcieReplayCounter = 3
1.nvmlDeviceGetCurrPcieLinkGeneration = 5
1.nvmlDeviceGetCurrPcieLinkWidth = 8
1.nvmlDeviceGetMaxPcieLinkWidth = 16
1.nvmlDeviceGetPerformanceState = 2
1.nvmlDeviceGetEccMode = 1 0
1.nvmlDeviceGetTotalEccErrors.1.0 = 4
1.nvmlDeviceGetTotalEccErrors.0.1 = 12
1.nvmlDeviceGetRemappedRows = 2 1 1 0
1.nvmlDeviceGetRetiredPages.1 = 2
1.nvmlDeviceGetCudaComputeCapability = 9 0
1.nvmlDeviceGetViolationStatus.0 = 77
1.nvmlDeviceGetNvLinkState.17 = 1
1.nvmlDeviceGetNvLinkErrorCounter.17.2 = 8
1.nvmlDeviceGetMigMode = 1 1
1.nvmlDeviceGetMaxMigDeviceCount = 7
1/3.nvmlDeviceGetUUID = MIG-c
1/3.nvmlDeviceGetGpuInstanceId = 5
1/3.nvmlDeviceGetComputeInstanceId = 0
1.nvmlDeviceGetSupportedEventTypes = 8
1.processes = 42:1000 43:-
1.field.82 = 74
1.field.230 = NO_PERMISSION
1.field.215@3 = 9
"""


def a_card(card):
    pci = nvml.nvmlDeviceGetPciInfo(card)
    same("address", (pci.busId, pci.domain, pci.bus), ("00000000:A1:00.0", 0, 0xA1))
    rates = nvml.nvmlDeviceGetUtilizationRates(card)
    same("use", (rates.gpu, rates.memory), (87, 41))
    memory = nvml.nvmlDeviceGetMemoryInfo(card, version=nvml.nvmlMemory_v2)
    values = (memory.total, memory.reserved, memory.free, memory.used)
    same("memory", values, (1000, 100, 300, 600))
    memory = nvml.nvmlDeviceGetMemoryInfo(card)
    same("memory, first version", (memory.total, memory.free, memory.used), (1000, 300, 700))
    bar = nvml.nvmlDeviceGetBAR1MemoryInfo(card)
    same("BAR1", (bar.bar1Total, bar.bar1Free, bar.bar1Used), (256, 250, 6))
    for name, args, expected in [
        ("Name", (), "NVIDIA H200"),
        ("UUID", (), "GPU-b"),
        ("Serial", (), "1650000000000"),
        ("VbiosVersion", (), "96.00.A0.00.01"),
        ("Index", (), 1),
        ("MinorNumber", (), 5),
        ("Temperature", (0,), 61),
        ("TemperatureThreshold", (1,), 92),
        ("PowerUsage", (), 412345),
        ("EnforcedPowerLimit", (), 700000),
        ("TotalEnergyConsumption", (), 9000000000),
        ("ClockInfo", (1,), 1980),
        ("MaxClockInfo", (2,), 3201),
        ("CurrentClocksThrottleReasons", (), 68),
        ("CurrentClocksEventReasons", (), 68),
        ("PcieReplayCounter", (), 3),
        ("CurrPcieLinkGeneration", (), 5),
        ("CurrPcieLinkWidth", (), 8),
        ("MaxPcieLinkWidth", (), 16),
        ("PerformanceState", (), 2),
        ("EccMode", (), [1, 0]),
        ("TotalEccErrors", (1, 0), 4),
        ("TotalEccErrors", (0, 1), 12),
        ("CudaComputeCapability", (), [9, 0]),
        ("NvLinkState", (17,), 1),
        ("NvLinkErrorCounter", (17, 2), 8),
        ("MigMode", (), [1, 1]),
    ]:
        found = getattr(nvml, f"nvmlDeviceGet{name}")(card, *args)
        same(name, list(found) if isinstance(found, (list, tuple)) else found, expected)
    same("rows", list(nvml.nvmlDeviceGetRemappedRows(card)), [2, 1, 1, 0])
    same("throttled", nvml.nvmlDeviceGetViolationStatus(card, 0).violationTime, 77)


def lists_and_parts(card):
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(card)
    same("processes", [(p.pid, p.usedGpuMemory) for p in processes], [(42, 1000), (43, None)])
    fields = nvml.nvmlDeviceGetFieldValues(card, [82, 230, (215, 3)])
    codes = [field.nvmlReturn for field in fields]
    same("codes of fields", codes, [0, nvml.NVML_ERROR_NO_PERMISSION, 0])
    same("fields", (fields[0].value.ullVal, fields[2].value.ullVal), (74, 9))
    same("parts", nvml.nvmlDeviceGetMaxMigDeviceCount(card), 7)
    part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 3)
    same("part", nvml.nvmlDeviceGetUUID(part), "MIG-c")
    same("part of", nvml.nvmlDeviceGetGpuInstanceId(part), 5)
    whole = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
    same("whole", nvml.nvmlDeviceGetUUID(whole), "GPU-b")
    hole = lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 2)
    refused("a part that is none", hole, nvml.NVMLError_NotFound)


def failures(card):
    other = nvml.nvmlDeviceGetHandleByIndex(0)
    power = lambda: nvml.nvmlDeviceGetPowerUsage(other)
    refused("what no line names", power, nvml.NVMLError_NotSupported)
    nowhere = lambda: nvml.nvmlDeviceGetHandleByIndex(2)
    refused("a card that is none", nowhere, nvml.NVMLError_InvalidArgument)
    unscripted = lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(card, other)
    refused("a call without a script", unscripted, nvml.NVMLError_NotSupported)
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(card, nvml.nvmlEventTypeXidCriticalError, events)
    refused("no event", lambda: nvml.nvmlEventSetWait_v2(events, 0), nvml.NVMLError_Timeout)
    script(NODE + "xids = 1:79\nfail.1.* = GPU_IS_LOST\n")
    event = nvml.nvmlEventSetWait_v2(events, 1000)
    xid = nvml.nvmlEventTypeXidCriticalError
    same("event", (event.eventType, event.eventData), (xid, 79))
    lost = nvml.NVMLError_GpuIsLost
    refused("waiting for a lost card", lambda: nvml.nvmlEventSetWait_v2(events, 1000), lost)
    refused("a lost card", lambda: nvml.nvmlDeviceGetUUID(card), lost)
    same("the other card", nvml.nvmlDeviceGetUUID(other), "GPU-a")
    nvml.nvmlEventSetFree(events)


def entry_points():
    with open(nvml.__file__) as file:
        named = set(re.findall(r'_nvmlGetFunctionPointer\("(nvml[A-Z]\w*)"\)', file.read()))
    absent = sorted(name for name in named if not hasattr(nvml.nvmlLib, name))
    same("entry points that the binding knows and the library lacks", absent, [])
    return len(named)


script("fail.sys.nvmlInit = DRIVER_NOT_LOADED\n")
refused("no driver", nvml.nvmlInit, nvml.NVMLError_DriverNotLoaded)
script(NODE)
nvml.nvmlInit()
same("driver", nvml.nvmlSystemGetDriverVersion(), "580.95.05")
same("library", nvml.nvmlSystemGetNVMLVersion(), "13.580.95.05")
same("CUDA", nvml.nvmlSystemGetCudaDriverVersion_v2(), 13010)
same("cards", nvml.nvmlDeviceGetCount(), 2)
by_address = nvml.nvmlDeviceGetHandleByPciBusId("00000000:a1:00.0")
same("by address", nvml.nvmlDeviceGetUUID(by_address), "GPU-b")
one = nvml.nvmlDeviceGetHandleByUUID("GPU-b")
a_card(one)
lists_and_parts(one)
failures(one)
known = entry_points()
nvml.nvmlShutdown()
print(f"{checks} values and failures as scripted; {known} entry points are there")
