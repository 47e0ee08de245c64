# For the scripts of this folder: sets `lmc` and `arch` (this machine's GPU), and defines
#   run_extracted PLAN NAME DIR    extracts kernel NAME of PLAN into DIR, compiles it and runs it
lmc=${LMC_BUILD_DIR:-build}/bin/lmc
arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)

run_extracted() {
  local program=$3/$2 flags
  "$lmc" explain "$1" "--extract-kernel=$2" -o "$program.cu"
  # The second line of the file says how to compile it.
  read -r -a flags < <(sed -n '2s|^// *nvcc \(.*\) -arch=.*|\1|p' "$program.cu")
  nvcc "${flags[@]}" "-arch=$arch" "$program.cu" -o "$program"
  "$program"
}
