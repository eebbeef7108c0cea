"""TFRecord files of tf.train.Example, read and written without TensorFlow."""
