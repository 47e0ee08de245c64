// plan-check-aliasing knows that commands run beside an async collective until its wait.
// RUN: lmc-opt %s -split-input-file -verify-diagnostics --plan-check-aliasing | FileCheck %s

// What the collective neither reads nor writes may be used; what it reads may be read.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none

// CHECK-LABEL: plan.function @beside peak 0
plan.function @beside peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  plan.all_gather {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
  plan.copy (
    x %x : tensor<64xf32>
    d %y : tensor<64xf32>
  )
  plan.wait {accumulate} (
    d %z : tensor<128xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @beside() {
    %x = lm.load @x : tensor<64xf32>
    %s = dist.all_gather %x over @ranks shard : (tensor<64xf32>) -> tensor<128xf32> {async}
    lm.store %x, @y : tensor<64xf32>
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    lm.store %z, @z : tensor<128xf32>
    return
  }
}

// -----

// What the collective writes may not be read before its wait, even if the bytes read are of no use.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none
plan.function @f peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  %part = plan.variable_ref @z : !plan.slice<tensor<64xf32>>
  plan.all_gather {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
  // expected-error @+1 {{command 1 of @f, plan.copy, reads bytes [512, 768) of @state, which command 0, plan.all_gather, uses until its wait}}
  plan.copy (
    x %part : tensor<64xf32>
    d %y : tensor<64xf32>
  )
  plan.wait {accumulate} (
    d %z : tensor<128xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @f() {
    %x = lm.load @x : tensor<64xf32>
    %y = lm.load @y : tensor<64xf32>
    %s = dist.all_gather %x over @ranks shard : (tensor<64xf32>) -> tensor<128xf32> {async}
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    lm.store %z, @z : tensor<128xf32>
    return
  }
}

// -----

// Nor may it be written.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none
plan.function @f peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  %part = plan.variable_ref @z : !plan.slice<tensor<64xf32>>
  plan.all_gather {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
  // expected-error @+1 {{command 1 of @f, plan.copy, writes bytes [512, 768) of @state, which command 0, plan.all_gather, uses until its wait}}
  plan.copy (
    x %y : tensor<64xf32>
    d %part : tensor<64xf32>
  )
  plan.wait {accumulate} (
    d %z : tensor<128xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @f() {
    %x = lm.load @x : tensor<64xf32>
    %y = lm.load @y : tensor<64xf32>
    %s = dist.all_gather %x over @ranks shard : (tensor<64xf32>) -> tensor<128xf32> {async}
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    lm.store %z, @z : tensor<128xf32>
    return
  }
}

// -----

// What the collective reads may not be written before its wait, even if the same value is written back.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none
plan.function @f peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  %part = plan.variable_ref @z : !plan.slice<tensor<64xf32>>
  plan.all_gather {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
  // expected-error @+1 {{command 1 of @f, plan.copy, writes bytes [0, 256) of @state, which command 0, plan.all_gather, uses until its wait}}
  plan.copy (
    x %y : tensor<64xf32>
    d %x : tensor<64xf32>
  )
  plan.wait {accumulate} (
    d %z : tensor<128xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @f() {
    %x = lm.load @x : tensor<64xf32>
    %y = lm.load @y : tensor<64xf32>
    %s = dist.all_gather %x over @ranks shard : (tensor<64xf32>) -> tensor<128xf32> {async}
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    lm.store %z, @z : tensor<128xf32>
    return
  }
}

// -----

// A function waits for each of its collectives.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none
plan.function @f peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  %part = plan.variable_ref @z : !plan.slice<tensor<64xf32>>
  // expected-error @+1 {{command 0 of @f, plan.all_gather, is never waited for}}
  plan.all_gather {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @f() {
    %x = lm.load @x : tensor<64xf32>
    %y = lm.load @y : tensor<64xf32>
    %s = dist.all_gather %x over @ranks shard : (tensor<64xf32>) -> tensor<128xf32> {async}
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    lm.store %z, @z : tensor<128xf32>
    return
  }
}

// -----

// A wait is for a collective that has started.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none
plan.function @f peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  %part = plan.variable_ref @z : !plan.slice<tensor<64xf32>>
  // expected-error @+1 {{command 0 of @f, plan.wait, waits for what no collective has started to write}}
  plan.wait {accumulate} (
    d %z : tensor<128xf32>
  )
  plan.all_gather {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @f() {
    %x = lm.load @x : tensor<64xf32>
    %y = lm.load @y : tensor<64xf32>
    %s = dist.all_gather %x over @ranks shard : (tensor<64xf32>) -> tensor<128xf32> {async}
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    lm.store %z, @z : tensor<128xf32>
    return
  }
}

// -----

// Collectives along different axes run at the same time, so neither may disturb the other.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none
plan.function @axes peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  %part = plan.variable_ref @z : !plan.slice<tensor<64xf32>>
  plan.all_reduce {accumulate, async, axis = 0 : i32, mesh = @ranks} (
    d %part : tensor<64xf32>
  )
  // expected-error @+1 {{command 1 of @axes, plan.all_gather, writes bytes [512, 1024) of @state, which command 0, plan.all_reduce, uses until its wait}}
  plan.all_gather {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
  plan.wait {accumulate} (
    d %z : tensor<128xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @axes() {
    %x = lm.load @x : tensor<64xf32>
    %old = lm.load @z : tensor<128xf32>
    %part = tensor.extract_slice %old[0] [64] [1] : tensor<128xf32> to tensor<64xf32>
    %r = dist.all_reduce %part over @ranks replicate : (tensor<64xf32>) -> tensor<64xf32> {async}
    %s = dist.all_gather %x over @ranks shard : (tensor<64xf32>) -> tensor<128xf32> {async}
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    %sum = dist.wait %r : (tensor<64xf32>) -> tensor<64xf32>
    lm.store %z, @z : tensor<128xf32>
    lm.store %sum, @y : tensor<64xf32>
    return
  }
}

// -----

// The wait for a collective ends those before it along its axis, and no others.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @y at @state[256] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none
plan.function @other peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  plan.all_reduce {accumulate, async, axis = 0 : i32, mesh = @ranks} (
    d %y : tensor<64xf32>
  )
  plan.all_gather {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
  plan.wait {accumulate} (
    d %z : tensor<128xf32>
  )
  // expected-error @+1 {{command 3 of @other, plan.copy, reads bytes [256, 512) of @state, which command 0, plan.all_reduce, uses until its wait}}
  plan.copy (
    x %y : tensor<64xf32>
    d %x : tensor<64xf32>
  )
  plan.wait {accumulate} (
    d %y : tensor<64xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @other() {
    %x = lm.load @x : tensor<64xf32>
    %y = lm.load @y : tensor<64xf32>
    %r = dist.all_reduce %y over @ranks replicate : (tensor<64xf32>) -> tensor<64xf32> {async}
    %s = dist.all_gather %x over @ranks shard : (tensor<64xf32>) -> tensor<128xf32> {async}
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    %sum = dist.wait %r : (tensor<64xf32>) -> tensor<64xf32>
    lm.store %z, @z : tensor<128xf32>
    lm.store %sum, @y : tensor<64xf32>
    lm.store %sum, @x : tensor<64xf32>
    return
  }
}

// -----

// A collective may work on the unfinished result of one along another axis, and starts when that one
// has ended. The wait for the last one ends both.

dist.mesh @ranks(replicate = 2, shard = 2)
plan.arena @state bytes 768 alignment 64 lower_bound 768
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<128xf32> input init none
plan.variable @y at @state[512] : tensor<64xf32> input init none

// CHECK-LABEL: plan.function @chain peak 0
plan.function @chain peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<128xf32>>
  %y = plan.variable_ref @y : !plan.slice<tensor<64xf32>>
  %x0 = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  plan.reduce_scatter {async, axis = 1 : i32, mesh = @ranks} (
    x %x : tensor<128xf32>
    d %y : tensor<64xf32>
  )
  plan.all_reduce {accumulate, async, axis = 0 : i32, mesh = @ranks} (
    d %y : tensor<64xf32>
  )
  plan.wait {accumulate} (
    d %y : tensor<64xf32>
  )
  plan.copy (
    x %y : tensor<64xf32>
    d %x0 : tensor<64xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 2, shard = 2)
  lm.variable @x input : tensor<128xf32> init none
  lm.variable @y input : tensor<64xf32> init none
  func.func @chain() {
    %x = lm.load @x : tensor<128xf32>
    %r = dist.reduce_scatter %x over @ranks shard : (tensor<128xf32>) -> tensor<64xf32> {async}
    %s = dist.all_reduce %r over @ranks replicate : (tensor<64xf32>) -> tensor<64xf32> {async}
    %y = dist.wait %s of %x : (tensor<64xf32>, tensor<128xf32>) -> tensor<64xf32>
    lm.store %y, @y : tensor<64xf32>
    %new = tensor.insert_slice %y into %x[0] [64] [1] : tensor<64xf32> into tensor<128xf32>
    lm.store %new, @x : tensor<128xf32>
    return
  }
}

// -----

// A collective that is not async starts after all earlier ones, along every axis, have ended.

dist.mesh @ranks(replicate = 1, shard = 2, experts = 2)
plan.arena @state bytes 1024 alignment 64 lower_bound 1024
plan.arena @workspace bytes 0 alignment 64 lower_bound 0
plan.variable @x at @state[0] : tensor<64xf32> input init none
plan.variable @z at @state[512] : tensor<128xf32> input init none

// CHECK-LABEL: plan.function @after_experts peak 0
plan.function @after_experts peak 0 {
  %x = plan.variable_ref @x : !plan.slice<tensor<64xf32>>
  %z = plan.variable_ref @z : !plan.slice<tensor<128xf32>>
  plan.all_gather {async, axis = 2 : i32, mesh = @ranks} (
    x %x : tensor<64xf32>
    d %z : tensor<128xf32>
  )
  plan.all_reduce {accumulate, axis = 1 : i32, mesh = @ranks} (
    d %x : tensor<64xf32>
  )
  plan.wait {accumulate} (
    d %z : tensor<128xf32>
  )
}
module @tensors {
  dist.mesh @ranks(replicate = 1, shard = 2, experts = 2)
  lm.variable @x input : tensor<64xf32> init none
  lm.variable @z input : tensor<128xf32> init none
  func.func @after_experts() {
    %x = lm.load @x : tensor<64xf32>
    %s = dist.all_gather %x over @ranks expert : (tensor<64xf32>) -> tensor<128xf32> {async}
    %r = dist.all_reduce %x over @ranks shard : (tensor<64xf32>) -> tensor<64xf32>
    %z = dist.wait %s of %x : (tensor<128xf32>, tensor<64xf32>) -> tensor<128xf32>
    lm.store %r, @x : tensor<64xf32>
    lm.store %z, @z : tensor<128xf32>
    return
  }
}
