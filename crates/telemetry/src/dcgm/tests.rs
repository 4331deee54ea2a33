use super::*;

fn told(text: &str) -> Vec<(String, Option<u32>, f64)> {
    let mut all = Vec::new();
    gpus(&Page::read(text), &mut |told| all.push((format!("{}{}", told.name, told.labels), told.device, told.value)));
    all
}

#[test]
fn fields_become_signals_in_their_units_each_gpu_by_itself() {
    let text = "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n\
        DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA H100\"} 97\n\
        DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\"} 3\nDCGM_FI_DEV_FB_USED{gpu=\"0\"} 2\n\
        DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"0\"} 1\nDCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu=\"1\"} 36\n\
        DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} 351.5\nDCGM_FI_DEV_XID_ERRORS{gpu=\"0\"} 0\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\"} nan\n";
    let own = |name: &str, device, value| (name.to_owned(), Some(device), value);
    assert_eq!(
        told(text),
        [
            own("gpu.utilization", 0, 0.97),
            own("gpu.utilization", 1, 0.03),
            own("gpu.memory", 0, 2.0 * 1024.0 * 1024.0),
            own("gpu.power", 0, 351.5),
            own("gpu.throttled", 0, 0.0),
            own("gpu.throttled", 1, 1.0),
            ("DCGM_FI_DEV_XID_ERRORSgpu=\"0\"".to_owned(), None, 0.0),
        ]
    );
}

#[test]
fn the_memory_of_the_parts_of_a_divided_gpu_is_added() {
    let text = "DCGM_FI_DEV_FB_USED{gpu=\"3\",GPU_I_ID=\"1\"} 1\nDCGM_FI_DEV_FB_USED{gpu=\"3\",GPU_I_ID=\"2\"} 2\n\
        DCGM_FI_DEV_POWER_USAGE{gpu=\"3\",GPU_I_ID=\"1\"} 90\nDCGM_FI_DEV_POWER_USAGE{gpu=\"3\",GPU_I_ID=\"2\"} 90\n";
    let rows = told(text);
    assert_eq!(rows[0], ("gpu.memory".to_owned(), Some(3), 3.0 * 1024.0 * 1024.0));
    assert_eq!(rows[1], ("gpu.power".to_owned(), Some(3), 90.0));
}
